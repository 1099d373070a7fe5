package nic

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// A data message carries a power of two of bytes, from one unit to a whole operation.
func TestPieceOf(t *testing.T) {
	for mtu, want := range map[int]int{
		minMTU: 64, minMTU + 63: 64, minMTU + 64: 128, 300: 128, 1111: 512, 1112: 1024, 1500: 1024, 2136: 2048, 4183: 2048, 4184: 4096, 4200: 4096, 9000: 4096,
	} {
		if got := pieceOf(mtu); got != want {
			t.Errorf("MTU %d: pieces of %d bytes, want %d", mtu, got, want)
		}
	}
}

// The data of several READs of a peer, and their requests, travel as one super-frame each, also when
// an operation needs several messages.
func TestOperationsShareASuperFrame(t *testing.T) {
	const reads = 8
	w := newWorld(t, 2, func(_ int, c *Config) { c.LinkMTU = 1500 })
	p := w.portal(0, 7, reads)
	c := w.command(onerma.Read, 7, 0, 4096)
	for range reads {
		if err := p.Issue(w.now, c); err != nil {
			t.Fatal(err)
		}
	}
	var requests, data packetio.Batch
	w.nics[0].Tick(w.now, &requests)
	if run := packetio.FirstRun(requests.Frames, 1514); run.Frames != reads {
		t.Errorf("%d of %d requests fit into a super-frame", run.Frames, reads)
	}
	for _, f := range requests.Frames {
		w.nics[1].Frame(w.now, 0, f, &data)
	}
	if run := packetio.FirstRun(data.Frames, 1514); run.Frames != len(data.Frames) || run.Frames != 4*reads || run.SegSize != onerma.HeaderLen+1024+onerma.TagLen {
		t.Errorf("%d of %d data messages, each of %d bytes, fit into a super-frame", run.Frames, len(data.Frames), run.SegSize)
	}
}
