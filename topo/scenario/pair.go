package scenario

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// pair is a connection whose one end, on host, sends messages that the server receives. The seed
// has drawn its parameters.
type pair struct {
	index    int
	host     string // the sender's host
	ops      int    // number of messages
	depth    int    // the most messages in flight
	draw     *draw
	msgs     perf.Pattern
	received int // messages that the server has received
}

// drawPair draws the parameters of connection number i.
func drawPair(d *draw, i int) pair {
	return pair{
		index: i, host: fmt.Sprintf("cn%d", i%2), ops: d.between(50, 300), depth: d.between(1, 32),
		draw: newDraw(d.Uint64()), msgs: perf.Pattern{Seed: d.Uint64()},
	}
}

// open makes the sender's end with a buffer of slot bytes for each message in flight, and connects
// it. It returns the outbox, and the region that the server names.
func (p *pair) open(e *env, ctx verbs.Context, of verbs.QPType, service string, params rdmacm.Params, slot int) (*outbox, remote, error) {
	end, err := newEndsOf(ctx, verbs.QPInit{Type: of, MaxSendWR: p.depth, MaxInline: maxInline}, p.depth*slot, 2*p.depth, verbs.LocalWrite)
	if err != nil {
		return nil, remote{}, err
	}
	regions, err := dial(e, e.rack.Host(p.host), ctx, end.qp, service, params, []byte{byte(p.index)})
	if err != nil {
		return nil, remote{}, err
	}
	return &outbox{ends: end, draw: p.draw, ops: p.ops, depth: p.depth}, regions[0], nil
}
