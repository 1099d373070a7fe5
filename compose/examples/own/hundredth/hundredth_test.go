package hundredth

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// A switch with two ports is all that a test needs: frames go in, and those that leave are in a batch.
func TestEveryHundredthReadIsDropped(t *testing.T) {
	p := &program{requests: map[uint32]uint64{}}
	sw, err := pipeline.New(pipeline.Config{Ports: 2, Program: p})
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for i := range 250 {
		read := wire.Frame{Eth: wire.Ethernet{Dst: wire.MAC{2, 0, 0, 0, 0, 2}, Src: wire.MAC{2, 0, 0, 0, 0, 1}}}
		read.BTH = wire.BTH{Opcode: wire.RCReadRequest, PKey: 0xffff, DestQP: 0x11, PSN: wire.PSN(i)}
		read.RETH = wire.RETH{RKey: 7, Length: 8}
		var out packetio.Batch
		sw.Frame(0, 0, packetio.Frame{Data: read.AppendTo(nil)}, &out)
		left += len(out.Frames)
	}
	if left != 248 || p.dropped != 2 || p.requests[7] != 250 {
		t.Errorf("%d READs left the switch, %d were dropped, %d counted", left, p.dropped, p.requests[7])
	}
}
