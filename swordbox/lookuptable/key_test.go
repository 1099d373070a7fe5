package lookuptable

import (
	"net/netip"
	"testing"
)

// Flows that differ only in a port are spread evenly over servers and home slots, by each hash.
func TestKeysAreSpread(t *testing.T) {
	for _, name := range []string{Mix, CRC32} {
		keysAreSpread(t, hashOf(name))
	}
}

func keysAreSpread(t *testing.T, hash Hash) {
	t.Helper()
	const flows = 1024
	for _, n := range []int{2, 3, 4, 5, 8} {
		l := Layout{Servers: make([]netip.Addr, n), Capacity: n, Hash: hash}
		servers, slots := make([]int, n), make([]int, n)
		for i := range flows {
			k := Key{Src: [16]byte{10, 77, 0, 5}, Dst: [16]byte{10, 77, 0, 6}, SrcPort: uint16(10000 + i), DstPort: 9, Proto: protoUDP}
			server, home := l.Place(l.Hash.sum(&k))
			servers[server]++
			slots[home]++
		}
		for i := range n {
			if low, high := flows/n*3/4, flows/n*5/4; servers[i] < low || servers[i] > high || slots[i] < low || slots[i] > high {
				t.Errorf("%s: %d servers with a slot each: server %d has %d of %d flows, slot %d of all has %d", hash.Name, n, i, servers[i], flows, i, slots[i])
			}
		}
	}
}
