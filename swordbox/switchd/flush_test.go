package switchd

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
)

// ringPort is a port whose received frames are in its own memory, which Close clears, as Close of a
// packet socket replaces its ring by zeros.
type ringPort struct {
	in   [][]byte
	sent [][]byte
	fail error // the error of Send
}

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
	for _, f := range b.Frames {
		p.sent = append(p.sent, bytes.Clone(f.Data))
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
func fixed(t *testing.T, list []*ringPort) *Daemon {
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
	d := fixed(t, list)
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
