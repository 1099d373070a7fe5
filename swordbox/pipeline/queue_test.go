package pipeline

import (
	"testing"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

func TestQueueIsBounded(t *testing.T) {
	a, b := memcable.Pair(memcable.Config{})
	defer a.Close()
	defer b.Close()
	q := Queue{MaxPackets: 4, MaxBytes: 300}
	one := packetio.Frame{Data: make([]byte, 100)}
	sf, _ := superOf(8)
	if !q.Offer(sf) || q.Offer(one) || q.Len() != 8 {
		t.Errorf("an empty queue takes one frame: %d", q.Len())
	}
	if q.Discard() != 8 {
		t.Error("discard")
	}
	for i := range 5 {
		if ok := q.Offer(one); ok != (i < 3) {
			t.Errorf("offer %d: %v", i, ok)
		}
	}
	packets, bytes, refused, err := q.Flush(a)
	if packets != 3 || bytes != 300 || refused != 0 || err != nil || q.Len() != 0 {
		t.Errorf("Flush = %d, %d, %d, %v", packets, bytes, refused, err)
	}
	var got packetio.Batch
	if n, _ := b.Recv(&got); n != 3 {
		t.Errorf("%d arrived", n)
	}
}
