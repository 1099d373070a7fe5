package sherman

import (
	"testing"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A page that was read while a key was removed from a later line and put into an earlier one shows
// the key twice; a scan returns it once. (Found by seed 5098 of rdmalab sim sherman --locks
// switch.)
func TestScanShowsAKeyOnce(t *testing.T) {
	shape := layout.Shape{}.WithDefaults()
	var p layout.Page
	p.Init(shape, make([]byte, shape.Page), layout.Header{Highest: layout.MaxKey, Self: layout.At(0, 1<<20), Generation: 1})
	for slot, key := range []uint64{0, 7, 3, 7, 9, 0} {
		p.Put(slot, key, []byte{byte(slot)})
	}
	var keys []uint64
	s := scan{left: 10, f: func(key uint64, _ []byte) bool { keys = append(keys, key); return true }}
	c := newClient()
	c.mem.node = new(Node)
	if err := c.emit(&s, &p, clock.Never); err != nil || s.left != 6 {
		t.Errorf("%d left: %v", s.left, err)
	}
	if len(keys) != 4 || keys[0] != 0 || keys[1] != 3 || keys[2] != 7 || keys[3] != 9 {
		t.Errorf("keys %d", keys)
	}
}
