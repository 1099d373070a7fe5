package crosscheck

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Messages of the NIC without connections are compared, and those that are malformed are not.
func TestFrameComparesMessages(t *testing.T) {
	f := onerma.Frame{
		IPv4:   wire.IPv4{TTL: 64, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
		Header: onerma.Header{Kind: onerma.Data, Op: onerma.Read, Slot: 1, At: 64, Generation: 2, Region: 3, Offset: 4, Length: 128, PID: 5, Counter: 6},
	}
	b := append(f.AppendOpen(nil, 64), bytes.Repeat([]byte{7}, 64+onerma.TagLen)...)
	if err := Frame(b); err != nil {
		t.Error(err)
	}
	other := bytes.Clone(b)
	other[14+20+3]-- // to port 4791: now it must be RoCEv2, or malformed
	if err := Frame(other); err != nil {
		t.Error(err)
	}
	b[14+20+8+1] = 9 // no such kind
	if err := Frame(b); err != nil {
		t.Error(err)
	}
}
