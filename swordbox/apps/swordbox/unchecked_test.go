package swordbox_test

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// attached makes a program without rules move requests to the server, with a shared connection.
func (b *bench) attached(p *swordbox.Program, h *serialize.Machine) {
	set, err := rules.NewSet([]rules.Rule{{Server: benchIP(benchServer), Action: rules.Move}})
	if err == nil {
		err = p.SetRules(set)
	}
	if err != nil {
		b.tb.Fatal(err)
	}
	b.sw.Step(b.now, &b.out, func(c *pipeline.Ctx) {
		to := benchFrame(benchSwitch, benchServer, 0x300, wire.RCWriteOnly, 0)
		if !h.Attach(c, switchconn.Shared{
			Key: switchconn.Key{Server: benchIP(benchServer)}, Generation: 1, ServerQPN: 0x300, OwnQPN: 0x301, MTU: benchMTU, Depth: 16, To: *to,
		}) {
			b.tb.Fatal("the shared connection was refused")
		}
	})
}

// A wrong bit in the PSN of an answer does not show that no request is in flight: the switch would
// move the next request before one that is lost behind the switch, and its answer would acknowledge
// the lost one.
func TestDamagedAnswerStartsNoMove(t *testing.T) {
	for _, late := range []bool{false, true} {
		h := serialize.New(serialize.Config{})
		p := swordbox.New(swordbox.Config{Own: own(t), Handlers: []handler.Handler{h}, Track: conntrack.Config{Settle: -1}})
		b := newBench(t, p)
		b.some()
		damaged := benchFrame(benchServer, 1, benchQP(1), wire.RCAck, 2).AppendTo(nil)
		damaged[14+20+8+11] ^= 1
		if !late {
			b.raw(benchServer, damaged)
		}
		b.attached(p, h)
		if late {
			b.raw(benchServer, damaged)
		}
		// Another client proves the key.
		write := func(client int, psn wire.PSN) (moved bool) {
			f := benchFrame(client, benchServer, benchQP(-client), wire.RCWriteOnly, psn)
			f.RETH, f.Payload = wire.RETH{VA: benchWord, RKey: 5, Length: 8}, make([]byte, 8)
			for _, f := range slices.Clone(b.frame(client, f)) {
				var out wire.Frame
				if err := wire.ParseFrame(f.Data, &out); err != nil {
					t.Fatal(err)
				}
				moved = moved || out.BTH.DestQP != benchQP(-client)
			}
			return moved
		}
		if write(2, 0) {
			t.Fatal("the first request is moved")
		}
		ack := benchFrame(benchServer, 2, benchQP(2), wire.RCAck, 0)
		ack.AETH.MSN = 1
		if b.frame(benchServer, ack); !write(2, 1) {
			t.Fatal("no request is moved")
		}
		// The client has no answer to 2 and 3. The server answers 2 again, 3 is lost again.
		for psn := range wire.PSN(2) {
			b.frame(1, benchFrame(1, benchServer, benchQP(-1), wire.RCSendOnly, 2+psn))
		}
		ack = benchFrame(benchServer, 1, benchQP(1), wire.RCAck, 2)
		ack.AETH.MSN = 3
		if b.frame(benchServer, ack); write(1, 4) {
			t.Errorf("late %v: a request is moved while one is in flight", late)
		}
		ack.BTH.PSN, ack.AETH.MSN = 4, 5
		if b.frame(benchServer, ack); !write(1, 5) {
			t.Errorf("late %v: no request is moved when all are answered", late)
		}
	}
}

// A READ whose length has a wrong bit does not keep the requests behind it from counting when they are
// counted later.
func TestRequestsBehindADamagedReadCount(t *testing.T) {
	p := swordbox.New(swordbox.Config{Own: own(t), Handlers: []handler.Handler{hotwords.New()}, Track: conntrack.Config{Settle: -1}})
	b := newBench(t, p)
	read := benchFrame(1, benchServer, benchQP(-1), wire.RCReadRequest, 0)
	read.RETH = wire.RETH{VA: 0x1000, Length: 8, RKey: 5}
	b.frame(1, read)
	read.BTH.PSN++
	data := read.AppendTo(nil)
	data[len(data)-4-3] ^= 1 // 64 KiB more
	b.raw(1, data)
	counted(t, p)
	const n = 50
	for i := range wire.PSN(n) {
		read.BTH.PSN = 1 + i
		b.frame(1, read)
		b.frame(benchServer, benchFrame(benchServer, 1, benchQP(1), wire.RCReadResponseOnly, 1+i))
	}
	if list := hottest(p); len(list) != 1 || list[0].Reads != n {
		t.Errorf("%d requests leave; counted: %+v", n, list)
	}
}

// A damaged request that the switch drops on a connection that it is learning from packets counts when
// it comes again, though the answer by which the switch knows the expected PSN is seen in between.
func TestDamagedRequestOfALearntConnectionCounts(t *testing.T) {
	b, p := counter(t)
	write := benchFrame(1, benchServer, 0x500, wire.RCWriteOnly, 0)
	write.RETH, write.Payload = wire.RETH{VA: 0x1000, Length: 8, RKey: 5}, make([]byte, 8)
	const n, damaged = 6, 3
	for write.BTH.PSN = range wire.PSN(n) {
		if b.frame(1, write); write.BTH.PSN+1 == damaged {
			next := *write
			next.BTH.PSN++
			data := next.AppendTo(nil)
			data[len(data)-5] ^= 1
			b.raw(1, data)
		}
		b.frame(benchServer, benchFrame(benchServer, 1, 0x501, wire.RCAck, write.BTH.PSN))
	}
	if list := hottest(p); len(list) != 1 || list[0].Writes != n {
		t.Errorf("%d requests leave; counted: %+v", n, list)
	}
}
