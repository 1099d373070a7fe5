package switchd

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"

	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// replacer is a program that replaces every CAS by a WRITE, and answers FAA itself.
type replacer struct{ payload [transform.WordLen]byte }

func (*replacer) Spec() pipeline.Spec { return pipeline.Spec{Name: "replacer"} }

func (r *replacer) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	n := transform.Note{From: p.BTH.Opcode, To: wire.RCWriteOnly, Conn: 7, PSN: p.BTH.PSN, NewPSN: 4711, Value: 1, Show: transform.ShowValue | transform.ShowPrior}
	switch p.BTH.Opcode {
	case wire.RCCmpSwap:
		transform.ToWrite(&p.Frame, 1, &r.payload)
		p.BTH.PSN = n.NewPSN
		return pipeline.Rewrite().With(n.String())
	case wire.RCFetchAdd:
		path := transform.PathOf(&p.Frame)
		path = path.Back(1)
		var f wire.Frame
		path.AtomicACK(&f, p.BTH.PSN, 1, 0)
		c.Emit(&f, transform.Note{From: wire.RCAtomicAck, To: wire.RCAtomicAck, Made: true, NewPSN: p.BTH.PSN}.String())
		return pipeline.Consume().With("answered by the switch")
	}
	return pipeline.Forward()
}

func (*replacer) Tick(*pipeline.Ctx) {}

func (*replacer) Deadline() clock.Time { return clock.Never }

// A capture shows a rewritten packet on both links, and the comment on each link names the other
// link.
func TestCaptureNamesTheOtherLink(t *testing.T) {
	onBench(t, func(c *Config) { c.Program = new(replacer) }, func(b *bench) {
		b.know()
		var buf bytes.Buffer
		ctx, stop := context.WithCancel(b.t.Context())
		done := make(chan error)
		go func() {
			_, err := b.traffic.hub.Capture(ctx, &buf, tap.Options{})
			done <- err
		}()
		synctest.Wait()
		b.send(0, roce(0, 1, wire.RCCmpSwap, 12))
		b.send(0, roce(0, 2, wire.RCFetchAdd, 13))
		b.send(0, roce(0, 1, wire.RCSendOnly, 14))
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		const want = `h0 up: CAS→WRITE conn 7 psn 12→4711 value 1, was 0, to h1
h1 down: CAS→WRITE conn 7 psn 12→4711 value 1, was 0, from h0
h0 up: answered by the switch
h0 down: made ATOMIC_ACK own conn psn 13
h0 up:
h1 down:
`
		if got := comments(t, &buf); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}
