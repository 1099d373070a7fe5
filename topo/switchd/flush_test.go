package switchd

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// ringPort is a port whose received frames are in its own memory, which Close clears, as Close of a
// packet socket replaces its ring by zeros.
type ringPort struct {
	in   [][]byte
	sent [][]byte
	fail error // the error of Send
	most int   // how many frames the link takes; it refuses the others. 0 means all
	packetio.Stats
}

// counting is a ringPort that counts packets.
type counting struct{ *ringPort }

func (p counting) Stats() packetio.Stats { return p.ringPort.Stats }

func (p *ringPort) Recv(b *packetio.Batch) (int, error) {
	b.Reset()
	for _, f := range p.in {
		b.Add(0, f)
	}
	return len(b.Frames), nil
}

func (p *ringPort) Send(b *packetio.Batch) (int, error) {
	if p.fail != nil {
		return 0, p.fail
	}
	for i, f := range b.Frames {
		if p.most > 0 && i >= p.most {
			p.TxDropped += uint64(f.Packets())
			continue
		}
		p.sent = append(p.sent, bytes.Clone(f.Data))
	}
	if p.most > 0 {
		return min(p.most, len(b.Frames)), nil
	}
	return len(b.Frames), nil
}

func (p *ringPort) Close() error {
	for _, f := range p.in {
		clear(f)
	}
	return nil
}

// fixed returns a switch with these ports whose loop does not run.
func fixed(t *testing.T, list ...packetio.Port) *Daemon {
	t.Helper()
	cfg := Config{
		Program:   forward.Program{},
		Open:      func(i int, _ Link) (packetio.Port, error) { return list[i], nil },
		NewWaiter: func(time.Duration, []packetio.Port) (packetio.Waiter, error) { return newWaiter(0, nil) },
	}
	for i := range list {
		cfg.Links = append(cfg.Links, Link{Host: string(rune('a' + i)), Ifname: string(rune('p' + i)), GSO: true})
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.captures.stop()
		_ = d.ports.waiter.Close()
		_ = d.ports.closePorts()
	})
	return d
}

// When a link fails as the switch sends to it, frames that have come from it in the same round
// arrive unchanged at the other hosts.
func TestFramesFromALinkThatFails(t *testing.T) {
	list := []*ringPort{{fail: errors.New("gone")}, {}, {}}
	d := fixed(t, list[0], list[1], list[2])
	list[0].in = [][]byte{frame(0, -1)}
	list[1].in = [][]byte{frame(1, 0)} // makes the switch send to the link that fails
	d.traffic.round()
	for _, p := range list[1:] {
		if len(p.sent) == 0 || !bytes.Equal(p.sent[0], frame(0, -1)) {
			t.Errorf("sent %x", p.sent)
		}
	}
	if d.ports.list[0].io != nil {
		t.Error("the failed port is in use")
	}
}

// Packets that the link refuses are counted one by one, also those of a super-frame.
func TestRefusedPacketsAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		port *ringPort
		want uint64
	}{
		"all: the link fails": {&ringPort{fail: errors.New("gone")}, 1 + 5 + 3},
		"all but the first":   {&ringPort{most: 1}, 5 + 3},
		"all but two":         {&ringPort{most: 2}, 3},
		"none":                {&ringPort{}, 0},
	} {
		from := &superPort{frames: []packetio.Frame{{Data: frame(0, -1)}, superFrame(5), superFrame(3)}}
		d := fixed(t, from, counting{tc.port})
		for range 2 { // the second time with counters that are not 0
			from.round = 0
			before := d.traffic.sw.Port(1).Drops[pipeline.ReasonNoTx]
			d.traffic.round()
			if n := d.traffic.sw.Port(1).Drops[pipeline.ReasonNoTx] - before; n != tc.want {
				t.Errorf("%s: %d packets counted, want %d", name, n, tc.want)
			}
			if tc.port.fail != nil {
				break
			}
		}
	}
}

// superPort is a port at which these frames arrive in the first round.
type superPort struct {
	ringPort
	frames []packetio.Frame
	round  int
}

func (p *superPort) Recv(b *packetio.Batch) (int, error) {
	b.Reset()
	if p.round++; p.round == 1 {
		b.Frames = append(b.Frames, p.frames...)
	}
	return len(b.Frames), nil
}
