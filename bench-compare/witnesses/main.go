// Command witnesses compares execution witnesses with go-ethereum's, and has go-ethereum execute on ours.
//
//	spinney witness --genesis genesis.json --blocks chain.rlp --all --out ours.ndjson
//	go run . genesis.json chain.rlp ours.ndjson geth.ndjson
//
// geth imports the chain, making the witness of each block that ours.ndjson has a line of; geth.ndjson gets
// them, in the form of debug_executionWitness. The sets of nodes, codes and headers are compared, and each
// block is executed statelessly on our witness: the state root and the receipts root have to be the header's.
// A canonical witness lacks code that the block writes before it reads it at another account, which had it
// before; geth looks for it there. Where it fails, it executes once more with the codes of its own witness.
// The exit code is 1 where that fails too; differences of sets are listed, for they follow from rules.
package main

import (
	"bufio"
	"bytes"
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
	"github.com/ethereum/go-ethereum/core/stateless"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rlp"
)

// canonical is a witness in the form of the execution specifications: headers are RLP.
type canonical struct {
	State   []hexutil.Bytes `json:"state"`
	Codes   []hexutil.Bytes `json:"codes"`
	Headers []hexutil.Bytes `json:"headers"`
}

type ourLine struct {
	Number  uint64      `json:"number"`
	Hash    common.Hash `json:"hash"`
	Witness canonical   `json:"witness"`
}

type gethLine struct {
	Number  uint64                `json:"number"`
	Hash    common.Hash           `json:"hash"`
	Witness *stateless.ExtWitness `json:"witness"`
}

// counts says how often sets were equal, and how they differed.
type counts struct {
	blocks, equal, executed, failed int
	// Blocks that geth executed on ours with its own codes alone.
	codes int
	// Blocks that geth makes no witness of.
	none int
	// What one side alone has: nodes, codes and headers.
	ours, geths [3]int
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: witnesses genesis.json chain.rlp ours.ndjson geth.ndjson")
		os.Exit(2)
	}
	file, err := os.ReadFile(os.Args[1])
	must(err)
	var genesis core.Genesis
	must(json.Unmarshal(file, &genesis))
	if genesis.Config.BlobScheduleConfig == nil {
		genesis.Config.BlobScheduleConfig = params.DefaultBlobSchedule
	}
	engine := beacon.New(ethash.NewFaker())
	chain, err := core.NewBlockChain(rawdb.NewMemoryDatabase(), &genesis, engine, core.DefaultConfig().WithArchive(true))
	must(err)
	defer chain.Stop()
	ours := readOurs(os.Args[3])
	file2, err := os.Create(os.Args[4])
	must(err)
	defer file2.Close()
	out := json.NewEncoder(file2)
	var c counts
	for _, block := range readBlocks(os.Args[2]) {
		our, wanted := ours[block.Hash()]
		if block.NumberU64() == 0 {
			continue
		}
		geths, err := chain.InsertBlockWithoutSetHead(context.Background(), block, wanted)
		must(err)
		_, err = chain.SetCanonical(block)
		must(err)
		if !wanted {
			continue
		}
		if geths == nil {
			c.none++
			continue
		}
		theirs := geths.ToExtWitness()
		must(out.Encode(gethLine{block.NumberU64(), block.Hash(), theirs}))
		c.blocks++
		c.compare(block, our, theirs)
		c.execute(chain, block, our, theirs.Codes)
	}
	fmt.Printf("%d blocks: %d with equal sets of nodes, codes and headers\n", c.blocks, c.equal)
	fmt.Printf("on ours geth executed %d, with its own codes %d more, failed %d\n", c.executed, c.codes, c.failed)
	if c.none > 0 {
		fmt.Printf("of %d blocks geth makes no witness\n", c.none)
	}
	for i, name := range []string{"nodes", "codes", "headers"} {
		fmt.Printf("%s: %d only in ours, %d only in geth's\n", name, c.ours[i], c.geths[i])
	}
	if c.blocks == 0 || c.failed > 0 {
		os.Exit(1)
	}
}

// compare lists what only one side has.
func (c *counts) compare(block *types.Block, our canonical, theirs *stateless.ExtWitness) {
	var headers []hexutil.Bytes
	for _, header := range theirs.Headers {
		bytes, err := rlp.EncodeToBytes(header)
		must(err)
		headers = append(headers, bytes)
	}
	equal := true
	sides := [3][2][]hexutil.Bytes{
		{our.State, theirs.State}, {our.Codes, theirs.Codes}, {our.Headers, headers},
	}
	for i, name := range []string{"node", "code", "header"} {
		for _, one := range only(sides[i][0], sides[i][1]) {
			c.ours[i]++
			equal = false
			fmt.Printf("block %d: only ours has the %s %x (%d bytes)\n", block.NumberU64(), name, crypto.Keccak256(one), len(one))
		}
		for _, one := range only(sides[i][1], sides[i][0]) {
			c.geths[i]++
			equal = false
			fmt.Printf("block %d: only geth's has the %s %x (%d bytes)\n", block.NumberU64(), name, crypto.Keccak256(one), len(one))
		}
	}
	if equal {
		c.equal++
	}
}

func only(a, b []hexutil.Bytes) (found []hexutil.Bytes) {
	has := make(map[string]bool, len(b))
	for _, one := range b {
		has[string(one)] = true
	}
	for _, one := range a {
		if !has[string(one)] {
			found = append(found, one)
		}
	}
	return found
}

// execute has geth execute the block on our witness, and on ours with other codes where that fails.
func (c *counts) execute(chain *core.BlockChain, block *types.Block, our canonical, codes []hexutil.Bytes) {
	why := executeOn(chain, block, our)
	if why == nil {
		c.executed++
		return
	}
	fmt.Printf("block %d: geth on ours: %v\n", block.NumberU64(), why)
	our.Codes = codes
	if why = executeOn(chain, block, our); why == nil {
		c.codes++
		return
	}
	c.failed++
	fmt.Printf("block %d: geth on ours with its codes: %v\n", block.NumberU64(), why)
}

// executeOn has geth execute the block on a witness, both roots blanked.
func executeOn(chain *core.BlockChain, block *types.Block, our canonical) error {
	ext := stateless.ExtWitness{State: our.State, Codes: our.Codes}
	for _, one := range our.Headers {
		header := new(types.Header)
		must(rlp.Decode(bytes.NewReader(one), header))
		ext.Headers = append(ext.Headers, header)
	}
	witness, err := stateless.NewWitness(block.Header(), nil, false)
	must(err)
	must(witness.FromExtWitness(&ext))
	header := types.CopyHeader(block.Header())
	header.Root, header.ReceiptHash = common.Hash{}, common.Hash{}
	task := types.NewBlockWithHeader(header).WithBody(*block.Body())
	root, receipts, err := core.ExecuteStateless(context.Background(), chain.Config(), vm.Config{}, task, witness)
	if err == nil && (root != block.Root() || receipts != block.ReceiptHash()) {
		err = fmt.Errorf("state root %x, receipts root %x", root, receipts)
	}
	return err
}

func readOurs(path string) map[common.Hash]canonical {
	file, err := os.Open(path)
	must(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<30)
	ours := make(map[common.Hash]canonical)
	for lines.Scan() {
		var line ourLine
		must(json.Unmarshal(lines.Bytes(), &line))
		ours[line.Hash] = line.Witness
	}
	must(lines.Err())
	return ours
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

func must(err error) {
	if err != nil {
		panic(err)
	}
}
