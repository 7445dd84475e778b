package main

import (
	"bufio"
	"crypto/ecdsa"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/consensus/beacon"
	"github.com/ethereum/go-ethereum/consensus/ethash"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/rawdb"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/types/bal"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethdb/pebble"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/ethereum/go-ethereum/triedb"
)

// size is how large a chain is, and the state that it begins on.
type size struct {
	// accounts have a balance at genesis.
	accounts int
	// slots of one contract are set at genesis, and written at random.
	slots uint64
	// blocks of txs transactions each: half transfers to accounts at random, half calls of the contract.
	blocks, txs int
	// changes are those of a block, in place of txs: a fifth are transfers, and the others slots that calls write,
	// a hundred each.
	changes int
	// lists has the chain be of Amsterdam, with the access list of each block beside it.
	lists bool
	// store is the kind of store that blocks of changes are taken into.
	store string
}

var (
	heavy = size{accounts: 300_000, slots: 200_000, blocks: 200, txs: 400}
	quick = size{accounts: 2_000, slots: 1_000, blocks: 10, txs: 40}
)

func (s size) String() string {
	if s.changes > 0 {
		return fmt.Sprintf("%d accounts, a contract of %d slots, %d blocks of %d changes", s.accounts, s.slots, s.blocks, s.changes)
	}
	return fmt.Sprintf("%d accounts, a contract of %d slots, %d blocks of %d transactions", s.accounts, s.slots, s.blocks, s.txs)
}

// target stores the second word of what it is called with in the slot that the first word names.
var (
	target     = common.HexToAddress("0xc0de000000000000000000000000000000000001")
	targetCode = common.FromHex("6020355f3555")
	// manyCode does so with each two words of what it is called with.
	manyCode = common.FromHex("5f5b8060200135813555604001803611600157" + "00")
)

// slotsPerCall are written by a call, where changes are counted.
const slotsPerCall = 100

// senderCount keys sign in turn. They are the numbers from 1 on.
const senderCount = 64

// makeChain writes genesis.json and chain.rlp, of the Cancun fork, to a folder; with lists, of Amsterdam, and
// bals.ndjson. The same size makes the same bytes.
func makeChain(folder string, s size) error {
	rng := rand.New(rand.NewPCG(7, 7))
	genesis, addresses, keys := makeGenesis(rng, s)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(genesis)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "genesis.json"), text, 0o644); err != nil {
		return err
	}
	signer := types.LatestSigner(genesis.Config)
	engine := beacon.New(ethash.NewFaker())
	var failed error
	fill := func(_ int, block *core.BlockGen) {
		count := s.txs
		if s.changes > 0 {
			count = s.changes/5 + s.changes*4/5/slotsPerCall
		}
		for i := range count {
			key := keys[i%len(keys)]
			from := crypto.PubkeyToAddress(key.PublicKey)
			fee := new(big.Int).Mul(block.BaseFee(), big.NewInt(2))
			tx := &types.DynamicFeeTx{ChainID: genesis.Config.ChainID, Nonce: block.TxNonce(from), GasFeeCap: fee, GasTipCap: big.NewInt(1)}
			switch {
			case s.changes == 0 && i%2 == 0 || s.changes > 0 && i < s.changes/5:
				tx.To, tx.Gas = &addresses[rng.IntN(len(addresses))], 21_000
				tx.Value = big.NewInt(int64(rng.IntN(1000) + 1))
			case s.changes == 0:
				tx.To, tx.Gas = &target, 60_000
				tx.Data = s.pair(rng)
			default:
				tx.To, tx.Gas = &target, s.callGas()
				for range slotsPerCall {
					tx.Data = append(tx.Data, s.pair(rng)...)
				}
			}
			signed, err := types.SignNewTx(key, signer, tx)
			if err != nil {
				failed = err
				return
			}
			block.AddTx(signed)
		}
	}
	state, err := os.MkdirTemp(folder, "state")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	store, err := pebble.New(state, 256, 64, "", false)
	if err != nil {
		return err
	}
	// On disk: a large state would not fit into memory.
	db := rawdb.NewDatabase(store)
	defer db.Close()
	tries := triedb.NewDatabase(db, triedb.HashDefaults)
	first, err := genesis.Commit(db, tries, nil)
	if err != nil {
		return err
	}
	if err := tries.Close(); err != nil {
		return err
	}
	blocks, receipts := core.GenerateChain(genesis.Config, first, engine, db, s.blocks, fill)
	if failed != nil {
		return failed
	}
	for _, receipt := range slices.Concat(receipts...) {
		if receipt.Status != types.ReceiptStatusSuccessful {
			return fmt.Errorf("block %d: transaction %d fails", receipt.BlockNumber, receipt.TransactionIndex)
		}
	}
	if s.lists {
		if err := writeLists(filepath.Join(folder, "bals.ndjson"), blocks); err != nil {
			return err
		}
	}
	return writeBlocks(filepath.Join(folder, "chain.rlp"), blocks)
}

// callGas is enough for a call that writes many slots.
func (s size) callGas() uint64 {
	if s.lists {
		return 3_000_000
	}
	return 1_500_000
}

// pair is a slot and what is to be in it.
func (s size) pair(rng *rand.Rand) []byte {
	words := make([]byte, 64)
	binary.BigEndian.PutUint64(words[24:], rng.Uint64N(s.slots))
	binary.BigEndian.PutUint64(words[56:], rng.Uint64()|1)
	return words
}

func makeGenesis(rng *rand.Rand, s size) (*core.Genesis, []common.Address, []*ecdsa.PrivateKey) {
	config := *params.MergedTestChainConfig
	config.PragueTime, config.OsakaTime, config.AmsterdamTime = nil, nil, nil
	config.BPO1Time, config.BPO2Time, config.BPO3Time, config.BPO4Time, config.BPO5Time = nil, nil, nil, nil, nil
	config.BlobScheduleConfig = &params.BlobScheduleConfig{Cancun: params.DefaultCancunBlobConfig}
	alloc := types.GenesisAlloc{}
	addresses := make([]common.Address, s.accounts)
	for i := range addresses {
		address := &addresses[i]
		binary.BigEndian.PutUint64(address[:], rng.Uint64())
		binary.BigEndian.PutUint64(address[8:], rng.Uint64())
		binary.BigEndian.PutUint32(address[16:], uint32(i))
		alloc[*address] = types.Account{Balance: big.NewInt(params.Ether)}
	}
	keys := make([]*ecdsa.PrivateKey, senderCount)
	for i := range keys {
		secret := common.BigToHash(big.NewInt(int64(i + 1)))
		key, err := crypto.ToECDSA(secret[:])
		if err != nil {
			panic(err)
		}
		keys[i] = key
		alloc[crypto.PubkeyToAddress(key.PublicKey)] = types.Account{Balance: new(big.Int).Lsh(big.NewInt(1), 90)}
	}
	word := func(number uint64) common.Hash { return common.BigToHash(new(big.Int).SetUint64(number)) }
	storage := map[common.Hash]common.Hash{}
	for slot := range s.slots {
		storage[word(slot)] = word(rng.Uint64() | 1)
	}
	code := targetCode
	if s.changes > 0 {
		code = manyCode
	}
	alloc[target] = types.Account{Balance: new(big.Int), Code: code, Storage: storage}
	genesis := &core.Genesis{Config: &config, Alloc: alloc, GasLimit: 60_000_000, Difficulty: new(big.Int), BaseFee: big.NewInt(params.InitialBaseFee), Timestamp: 1}
	if s.lists {
		ofAmsterdam(genesis)
	}
	return genesis, addresses, keys
}

// ofAmsterdam has the first block be of that fork: its system contracts are there, and there is gas for as many
// changes at its prices.
func ofAmsterdam(genesis *core.Genesis) {
	genesis.Config.PragueTime, genesis.Config.OsakaTime, genesis.Config.AmsterdamTime = new(uint64), new(uint64), new(uint64)
	genesis.Config.BlobScheduleConfig.Prague = params.DefaultPragueBlobConfig
	genesis.GasLimit = 300_000_000
	none := common.MaxHash
	for _, contract := range []struct {
		address common.Address
		code    []byte
		first   *common.Hash
	}{
		{params.BeaconRootsAddress, params.BeaconRootsCode, nil},
		{params.HistoryStorageAddress, params.HistoryStorageCode, nil},
		{params.WithdrawalQueueAddress, params.WithdrawalQueueCode, nil},
		{params.ConsolidationQueueAddress, params.ConsolidationQueueCode, nil},
		{params.BuilderDepositAddress, params.BuilderDepositCode, &none},
		{params.BuilderExitAddress, params.BuilderExitCode, &none},
	} {
		account := types.Account{Nonce: 1, Code: contract.code, Balance: new(big.Int)}
		if contract.first != nil {
			account.Storage = map[common.Hash]common.Hash{{}: *contract.first}
		}
		genesis.Alloc[contract.address] = account
	}
}

// blockList is a line of bals.ndjson, as those of the shared chains.
type blockList struct {
	Number  uint64               `json:"number"`
	Hash    common.Hash          `json:"hash"`
	BalHash common.Hash          `json:"balHash"`
	List    *bal.BlockAccessList `json:"accessList"`
	RLP     hexutil.Bytes        `json:"rlp"`
}

func writeLists(path string, blocks []*types.Block) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	lines := json.NewEncoder(out)
	for _, block := range blocks {
		text, err := rlp.EncodeToBytes(block.AccessList())
		if err != nil {
			return err
		}
		line := blockList{block.NumberU64(), block.Hash(), *block.BlockAccessListHash(), block.AccessList(), text}
		if err := lines.Encode(line); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return file.Close()
}

func writeBlocks(path string, blocks []*types.Block) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	for _, block := range blocks {
		if err := block.EncodeRLP(out); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return file.Close()
}
