module spinney.example/bench-compare/verkle

go 1.25.0

require (
	github.com/ethereum/go-verkle v0.2.2
	golang.org/x/sys v0.47.0
)

require (
	github.com/bits-and-blooms/bitset v1.7.0 // indirect
	github.com/consensys/bavard v0.1.13 // indirect
	github.com/consensys/gnark-crypto v0.12.1 // indirect
	github.com/crate-crypto/go-ipa v0.0.0-20240223125850-b1e8a79f509c // indirect
	github.com/mmcloughlin/addchain v0.4.0 // indirect
	golang.org/x/sync v0.1.0 // indirect
	rsc.io/tmplfunc v0.0.3 // indirect
)
