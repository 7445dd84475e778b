// Command traces prints what go-ethereum's prestateTracer says, in diff mode, of each transaction of a chain: a
// block a line, in the form of debug_traceChain. `spinney replay --traces` and `spinney bench --traces` read it.
//
//	go run . genesis.json chain.rlp > traces.ndjson
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/consensus/beacon"
	"github.com/ethereum/go-ethereum/consensus/ethash"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/rawdb"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/eth/tracers"
	_ "github.com/ethereum/go-ethereum/eth/tracers/native"
	"github.com/ethereum/go-ethereum/rlp"
)

// blockTrace is a line: an element of what debug_traceChain answers.
type blockTrace struct {
	Block  hexutil.Uint64 `json:"block"`
	Hash   common.Hash    `json:"hash"`
	Traces []txTrace      `json:"traces"`
}

type txTrace struct {
	TxHash common.Hash     `json:"txHash"`
	Result json.RawMessage `json:"result"`
}

// Blocks are executed by geth; seals are not looked at.
func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: traces genesis.json chain.rlp")
		os.Exit(2)
	}
	file, err := os.ReadFile(os.Args[1])
	must(err)
	var genesis core.Genesis
	must(json.Unmarshal(file, &genesis))
	engine := beacon.New(ethash.NewFaker())
	chain, err := core.NewBlockChain(rawdb.NewMemoryDatabase(), &genesis, engine, core.DefaultConfig().WithArchive(true))
	must(err)
	defer chain.Stop()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	lines := json.NewEncoder(out)
	for _, block := range readBlocks(os.Args[2]) {
		if block.NumberU64() == 0 {
			continue
		}
		_, err := chain.InsertChain(types.Blocks{block})
		must(err)
		must(lines.Encode(traceBlock(chain, block)))
	}
}

func readBlocks(path string) (blocks []*types.Block) {
	file, err := os.Open(path)
	must(err)
	defer file.Close()
	stream := rlp.NewStream(bufio.NewReader(file), 0)
	for {
		block := new(types.Block)
		err := stream.Decode(block)
		if errors.Is(err, io.EOF) {
			return blocks
		}
		must(err)
		blocks = append(blocks, block)
	}
}

func traceBlock(chain *core.BlockChain, block *types.Block) blockTrace {
	config, ctx := chain.Config(), context.Background()
	parent := chain.GetHeader(block.ParentHash(), block.NumberU64()-1)
	db, err := chain.StateAt(parent.Root, parent.Number, parent.Time)
	must(err)
	blockCtx := core.NewEVMBlockContext(block.Header(), chain, nil)
	before := vm.NewEVM(blockCtx, db, config, vm.Config{})
	core.PreExecution(ctx, block.BeaconRoot(), parent, config, before, block.Number(), block.Time())
	line := blockTrace{Block: hexutil.Uint64(block.NumberU64()), Hash: block.Hash(), Traces: []txTrace{}}
	signer := types.MakeSigner(config, block.Number(), block.Time())
	for i, tx := range block.Transactions() {
		tracer, err := tracers.DefaultDirectory.New("prestateTracer", &tracers.Context{
			BlockHash: block.Hash(), BlockNumber: block.Number(), TxIndex: i, TxHash: tx.Hash(),
		}, json.RawMessage(`{"diffMode": true}`), config)
		must(err)
		evm := vm.NewEVM(blockCtx, state.NewHookedState(db, tracer.Hooks), config, vm.Config{Tracer: tracer.Hooks})
		db.SetTxContext(tx.Hash(), i, uint32(i+1))
		message, err := core.TransactionToMessage(tx, signer, block.BaseFee())
		must(err)
		pool := core.NewGasPool(message.GasLimit)
		_, _, err = core.ApplyTransactionWithEVM(ctx, message, pool, db, block.Number(), block.Hash(), block.Time(), tx, evm)
		must(err)
		result, err := tracer.GetResult()
		must(err)
		line.Traces = append(line.Traces, txTrace{tx.Hash(), result})
	}
	return line
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
