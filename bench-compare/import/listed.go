package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rlp"
)

// listNode answers as a node that gives access lists, which geth 1.17.10 does not (eth_getBlockAccessList). It gets
// its next block when somebody asks for its last one and was given that: so every block comes alone.
type listNode struct {
	server *http.Server
	url
	blocks []listedBlock

	lock sync.Mutex
	// given is how many blocks somebody has.
	given int
}

// listedBlock is what is answered of a block.
type listedBlock struct {
	hash         common.Hash
	header, list json.RawMessage
	raw          hexutil.Bytes
}

func serveLists(chain chain) (*listNode, error) {
	blocks, err := readListed(chain)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	node := &listNode{blocks: blocks, url: url("http://" + listener.Addr().String())}
	node.server = &http.Server{Handler: node}
	// It ends when it is closed.
	go func() { _ = node.server.Serve(listener) }()
	return node, nil
}

func readListed(chain chain) ([]listedBlock, error) {
	file, err := os.Open(chain.file("chain.rlp"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lists, err := os.Open(chain.file("bals.ndjson"))
	if err != nil {
		return nil, err
	}
	defer lists.Close()
	stream, lines := rlp.NewStream(bufio.NewReader(file), 0), json.NewDecoder(bufio.NewReader(lists))
	var blocks []listedBlock
	for {
		raw, err := stream.Raw()
		if err == io.EOF {
			return blocks, nil
		}
		if err != nil {
			return nil, err
		}
		var block types.Block
		if err := rlp.DecodeBytes(raw, &block); err != nil {
			return nil, err
		}
		var line struct {
			Hash       common.Hash
			AccessList json.RawMessage
		}
		if err := lines.Decode(&line); err != nil {
			return nil, err
		}
		if line.Hash != block.Hash() {
			return nil, fmt.Errorf("the list of block %d is of another block", block.NumberU64())
		}
		if block.Header().BlockAccessListHash == nil {
			return nil, fmt.Errorf("block %d of %s names no access list: make the chain with -lists", block.NumberU64(), chain.file("chain.rlp"))
		}
		header, err := json.Marshal(block.Header())
		if err != nil {
			return nil, err
		}
		if len(blocks) == 0 {
			first := fmt.Sprintf(`{"number":"0x0","hash":%q}`, block.ParentHash())
			blocks = append(blocks, listedBlock{hash: block.ParentHash(), header: json.RawMessage(first)})
		}
		blocks = append(blocks, listedBlock{hash: block.Hash(), header: header, list: line.AccessList, raw: raw})
	}
}

func (n *listNode) close() { _ = n.server.Close() }

// rewind has it stand at its first block again.
func (n *listNode) rewind() {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.given = 0
}

// listCall is what is asked; params are all of it that matters.
type listCall struct {
	ID     json.RawMessage
	Method string
	Params []any
}

func (n *listNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.lock.Lock()
	defer n.lock.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var answer any
	if calls := []listCall{}; json.Unmarshal(body, &calls) == nil {
		answers := make([]any, len(calls))
		for at, call := range calls {
			answers[at] = n.answer(call)
		}
		answer = answers
	} else {
		var call listCall
		if err := json.Unmarshal(body, &call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer = n.answer(call)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (n *listNode) answer(call listCall) any {
	answer := map[string]any{"jsonrpc": "2.0", "id": call.ID}
	name := ""
	if len(call.Params) > 0 {
		name, _ = call.Params[0].(string)
	}
	block := n.find(name)
	switch {
	case call.Method == "eth_getBlockByNumber" && block != nil:
		answer["result"] = block.header
	case call.Method == "debug_getRawBlock" && block != nil:
		number, _ := strconv.ParseUint(strings.TrimPrefix(name, "0x"), 16, 64)
		n.given = max(n.given, int(number))
		answer["result"] = block.raw
	case call.Method == "eth_getBlockAccessList" && block != nil:
		answer["result"] = block.list
	case call.Method == "eth_getBlockByNumber":
		answer["result"] = nil
	case call.Method == "debug_getRawBlock":
		answer["result"] = "0x"
	default:
		answer["error"] = map[string]any{"code": -32601, "message": "there is no such method, or no such block"}
	}
	return answer
}

// find looks for a block by its number, its hash, or as the last one.
func (n *listNode) find(name string) *listedBlock {
	last := min(n.given+1, len(n.blocks)-1)
	if name == "latest" {
		return &n.blocks[last]
	}
	if len(name) == 66 {
		for at := last; at >= 0; at-- {
			if n.blocks[at].hash == common.HexToHash(name) {
				return &n.blocks[at]
			}
		}
		return nil
	}
	number, err := strconv.ParseUint(strings.TrimPrefix(name, "0x"), 16, 64)
	if err != nil || number > uint64(last) {
		return nil
	}
	return &n.blocks[number]
}
