package serialize

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// follower records the requests that leave under other numbers.
type follower struct{ from, to []pipeline.RequestID }

func (f *follower) Moved(from, to pipeline.RequestID) {
	f.from, f.to = append(f.from, from), append(f.to, to)
}

func (f *follower) Dropped() {}

// A follower learns under which PSN a request goes on on its client's connection.
func TestFollowedRequest(t *testing.T) {
	f := &follower{}
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1), follow: f})
	c := r.connect(0)
	l := r.sequencerOf(c)
	client, own := l.conn.psns.client, l.conn.psns.own
	if client == own {
		t.Fatal("no request has moved")
	}
	f.from, f.to = nil, nil
	c.post(c.flush(64))
	r.settle()
	id := pipeline.RequestID{Server: ipOf(serverIP), QPN: c.server.Num(), PSN: client}
	to := id
	to.PSN = own
	if len(f.from) != 1 || f.from[0] != id || f.to[0] != to {
		t.Errorf("%+v has become %+v, want %+v and %+v", f.from, f.to, id, to)
	}
}

// The texts with which a capture describes requests and responses on the client's connection.
func TestTextsOfRenumberedPackets(t *testing.T) {
	r, _, _ := answersTo(t)
	p := new(pipeline.Parsed)
	p.AETH.MSN = 3
	for _, c := range []struct {
		op                wire.Opcode
		ackReq, asked     bool
		request, response string
	}{
		{wire.RCWriteOnly, false, false, "WRITE own conn psn 100→90", "WRITE own conn psn 100→90"},
		{wire.RCWriteOnly, true, false, "WRITE own conn psn 100→90, acknowledgement requested", "WRITE own conn psn 100→90"},
		{wire.RCWriteOnly, true, true, "WRITE own conn psn 100→90", "WRITE own conn psn 100→90"},
		{wire.RCAck, false, false, "ACK own conn psn 100→90", "ACK own conn psn 100→90 msn 3"},
	} {
		p.BTH.Opcode, p.BTH.PSN, p.BTH.AckReq = c.op, 90, c.ackReq
		r.do(func(ctx *pipeline.Ctx) {
			if a, b := noteOwn(ctx, p, 100, c.asked), noteResponse(ctx, p, 100); a != "" || b != "" {
				t.Errorf("no capture runs: %q, %q", a, b)
			}
			r.sw.Observe(true)
			if got := noteOwn(ctx, p, 100, c.asked); got != c.request {
				t.Errorf("%q, want %q", got, c.request)
			}
			if got := noteResponse(ctx, p, 100); got != c.response {
				t.Errorf("%q, want %q", got, c.response)
			}
			r.sw.Observe(false)
		})
	}
}

// The texts with which a capture describes answers to clients. A packet of the server that causes
// several of them is described by all their texts.
func TestTextsOfAnswers(t *testing.T) {
	r, l, _ := answersTo(t)
	l.replies.msn = 7
	cause := transform.Note{From: wire.RCAck, Conn: 2, PSN: 50}
	for _, c := range []struct {
		op, answer wire.Opcode
		from       transform.Note
		want       string
	}{
		{wire.RCWriteOnly, wire.RCAck, cause, "ACK conn 2 psn 50→100 msn 7"},
		{wire.RCFetchAdd, wire.RCAtomicAck, cause, "ACK→ATOMIC_ACK conn 2 psn 50→100 msn 7, was 9"},
		{wire.RCAtomicWrite, wire.RCReadResponseOnly, cause, "ACK→READ_RESPONSE conn 2 psn 50→100 msn 7"},
		{wire.RCFetchAdd, wire.RCAtomicAck, transform.Note{Made: true}, "made ATOMIC_ACK own conn psn 100 msn 7, was 9"},
	} {
		rec := &record{psn: 100, asked: asked{op: c.op}, prior: 9}
		r.do(func(ctx *pipeline.Ctx) {
			r.m.step.from, r.m.step.note = c.from, ""
			if got := l.replies.noteAnswer(ctx, rec, c.answer); got != "" || r.m.step.note != "" {
				t.Errorf("no capture runs: %q", got)
			}
			r.sw.Observe(true)
			for i, all := range []string{c.want, c.want + "; " + c.want} {
				if c.from.Made {
					all = ""
				}
				if got := l.replies.noteAnswer(ctx, rec, c.answer); got != c.want || r.m.step.note != all {
					t.Errorf("answer %d: %q, all %q; want %q", i+1, got, r.m.step.note, c.want)
				}
			}
			r.sw.Observe(false)
			r.m.step.from = transform.Note{Made: true}
		})
	}
}

// A capture says of an answer whether a packet of the server has caused it.
func TestTextOfAMovedRequestsAnswer(t *testing.T) {
	for op, want := range map[wire.Opcode]string{wire.RCAck: "ACK conn 1 psn 50→", 0: "made ACK conn 1 psn "} {
		r, l, _ := answersTo(t)
		rec := inFlightOn(l, l.conn.psns.client.Add(-1), wire.RCWriteOnly)
		r.sw.Observe(true)
		r.do(func(ctx *pipeline.Ctx) {
			r.m.servers[0].links[0].Done(ctx, l.tag(rec.psn), requester.Answer{Kind: requester.Acked, Op: op, PSN: 50})
		})
		if notes := r.sw.Notes(); len(notes) != 1 || !strings.HasPrefix(notes[0].Text, want) {
			t.Errorf("%+v, want %s", notes, want)
		}
	}
}

// The texts of the NAKs that the switch makes.
func TestTextsOfNaks(t *testing.T) {
	r, l, _ := answersTo(t)
	l.replies.fatal = wire.NakRemoteAccess
	for _, observed := range []bool{false, true} {
		r.sw.Observe(observed)
		r.do(func(ctx *pipeline.Ctx) {
			l.replies.sendFatal(ctx)
			l.sendSequenceNak(ctx)
		})
		var texts []string
		for _, n := range r.sw.Notes() {
			texts = append(texts, n.Text)
		}
		if !observed {
			if len(texts) != 0 {
				t.Errorf("no capture runs: %q", texts)
			}
			continue
		}
		want := []string{"the request has failed and the connection has ended: " + wire.NakRemoteAccess.String() + " (program test)", "a request is missing, or there was no room to hold it (program test)"}
		if len(texts) != 2 || texts[0] != want[0] || texts[1] != want[1] {
			t.Errorf("%q, want %q", texts, want)
		}
	}
}
