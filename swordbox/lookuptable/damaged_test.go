package lookuptable

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// A cell may come back with any bytes behind the part of its header that names it, because a server's
// memory is not the switch's own. Nothing panics, and the frame counts once.
func TestCellsWithAnyBytes(t *testing.T) {
	const firstMeta = 12 // tag, place and number are before it
	for length := range uint16(40) {
		damagedCell(t, func(cell []byte) { binary.BigEndian.PutUint16(cell[firstMeta:], length) })
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 81))
		damagedCell(t, func(cell []byte) {
			for range 1 + r.IntN(20) {
				cell[firstMeta+r.IntN(len(cell)-firstMeta)] = byte(r.Uint32())
			}
			if r.IntN(2) == 0 {
				cell[firstMeta], cell[firstMeta+2], cell[firstMeta+3] = 0, 0, 0 // at most 255 bytes, and whole
			}
		})
	}
}

// damagedCell looks up a packet with an entry, and one without, whose cells come back damaged.
func damagedCell(t *testing.T, damage func(cell []byte)) {
	t.Helper()
	s := newServed(t, "table=ms0 capacity=16 cells=4 cell=512 base=0x1000 cache=0 depth=4")
	s.attach()
	s.add(false, pinged("80")+" dscp=46 dst=10.0.0.9:99")
	s.held = true
	s.send(ping(80, 1, 100), ping(81, 2, 100))
	damaged := 0
	for len(s.answers) > 0 {
		if p := s.answers[0].Payload; len(p) > 0 && len(p) != Probe*SlotLen {
			damage(p)
			damaged++
		}
		s.deliver(1)
	}
	if st := s.m.Stats(); damaged != 2 || st.Frames != 2 || s.m.InFlight() != 0 {
		t.Fatalf("%d cells damaged, %+v", damaged, st)
	}
}
