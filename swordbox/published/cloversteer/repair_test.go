package cloversteer

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// nothing is a program that forwards everything.
type nothing struct{}

func (nothing) Spec() pipeline.Spec { return pipeline.Spec{Name: "nothing"} }

func (nothing) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
func (nothing) Tick(*pipeline.Ctx)                                      {}
func (nothing) Deadline() clock.Time                                    { return clock.Never }

// The connection of the control plane comes up late. It sends an append that was lost recently. It
// does not send an older one, because the node of that may belong to another key by now.
func TestNoRepairWhenNodesMayBeOthers(t *testing.T) {
	sw, err := pipeline.New(pipeline.Config{Ports: 2, Program: nothing{}})
	if err != nil {
		t.Fatal(err)
	}
	m, server := New(Config{}), netip.MustParseAddr("10.0.0.1")
	start := clock.Time(time.Second)
	for _, at := range []clock.Time{start, start.Add(tooLate)} {
		m.remember(at, nil, server, &wire.Frame{})
	}
	var out packetio.Batch
	now := start.Add(tooLate + time.Second/2)
	sw.Step(now, &out, func(c *pipeline.Ctx) {
		m.Attach(c, switchconn.Shared{Key: switchconn.Key{Server: server, Shard: switchconn.RepairShard}})
		if m.Deadline() > now {
			t.Errorf("the repair is due at %v, want now", m.Deadline())
		}
		m.Tick(c)
	})
	if s := m.Stats(); s.Repairs != 1 || s.TooLate != 1 || len(m.repair.open) != 0 {
		t.Errorf("%+v, %d open", s, len(m.repair.open))
	}
	// The server does not answer for a long time, so the control plane's connection fails as well.
	for range 14 {
		now = now.Add(time.Second / 4)
		sw.Step(now, &out, m.Tick)
	}
	if s := m.Stats(); s.TooLate != 2 || m.Deadline() != clock.Never {
		t.Errorf("%+v, the next is due at %v", s, m.Deadline())
	}
}
