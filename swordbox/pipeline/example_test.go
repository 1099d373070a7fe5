package pipeline_test

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// firewall blocks atomics: it answers each with a NAK, as a responder without atomic access would.
type firewall struct{ refused int }

func (*firewall) Spec() pipeline.Spec {
	return pipeline.Spec{Name: "firewall", Doc: "refuses atomics", Split: true, Verify: true}
}

func (f *firewall) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	if p.BTH.Opcode != wire.RCCmpSwap && p.BTH.Opcode != wire.RCFetchAdd {
		return pipeline.Forward()
	}
	f.refused++
	nak := wire.Frame{Eth: wire.Ethernet{Dst: p.Eth.Src, Src: p.Eth.Dst}, IPv4: p.IPv4, UDP: p.UDP}
	nak.IPv4.Src, nak.IPv4.Dst = p.IPv4.Dst, p.IPv4.Src
	// A packet has only its destination's queue pair number. A real program must have learnt the
	// client's.
	nak.BTH = wire.BTH{Opcode: wire.RCAck, PKey: p.BTH.PKey, DestQP: p.BTH.DestQP, PSN: p.BTH.PSN}
	nak.AETH = wire.AETH{Syndrome: wire.NakRemoteAccess}
	c.Emit(&nak, "atomics are refused")
	return pipeline.Drop("atomic")
}

func (*firewall) Tick(*pipeline.Ctx) {}

func (*firewall) Deadline() clock.Time { return clock.Never }

// A program sees one parsed packet at a time, may send packets of its own, and returns a verdict.
func Example() {
	program := new(firewall)
	sw, err := pipeline.New(pipeline.Config{Ports: 2, Program: program})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, server := wire.MAC{2, 0, 0, 0, 0, 1}, wire.MAC{2, 0, 0, 0, 0, 2}
	cas := wire.Frame{Eth: wire.Ethernet{Dst: server, Src: client}}
	cas.BTH = wire.BTH{Opcode: wire.RCCmpSwap, PKey: 0xffff, DestQP: 0x11, PSN: 7}

	var out packetio.Batch
	sw.Frame(0, 0, packetio.Frame{Data: cas.AppendTo(nil)}, &out)
	for _, f := range out.Frames {
		var answer wire.Frame
		if err := wire.ParseFrame(f.Data, &answer); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("port", f.Port, answer.BTH.Opcode, "to", answer.Eth.Dst, "psn", answer.BTH.PSN)
	}
	fmt.Println("refused", program.refused, "dropped", sw.Port(0).Drops["atomic"])
	// Output:
	// port 0 RC_ACK to 02:00:00:00:00:01 psn 7
	// refused 1 dropped 1
}
