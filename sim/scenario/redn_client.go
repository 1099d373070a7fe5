package scenario

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// chainWant is a request in flight with the answer that it must have.
type chainWant struct {
	slot int // index of the value, and of the request, in the client's buffer
	hits int // how many answers with a value the request must get; the miss that ends the answers is not counted
	// place is the index of the bucket or node (see chainServer.places) whose value must be in the
	// client's memory after the last answer; -1 means none: then that memory must be zero.
	place int
	got   int // answers with a value that have come
}

// chainClient is a client of redn. It knows the contents of the server's memory, and therefore the
// right answer to each request.
type chainClient struct {
	run     *chainRun
	index   int
	program string
	host    string
	draw    *draw
	end     *ends
	base    uint64 // address of the server's data: buckets, nodes and values
	wants   []*chainWant
	asked   int
	spare   int // receives that are posted and that no answer has used
	sends   int // SENDs in flight, whose bytes must not change
}

const (
	chainAskLen = 512
	// chainPatience is longer than a request takes with all its retries.
	chainPatience = 20 * time.Second
)

func (r *chainRun) newClient(index int, program string) *chainClient {
	c := &chainClient{run: r, index: index, program: program, host: fmt.Sprintf("cn%d", index%computeHosts), draw: newDraw(r.env.draw.Uint64())}
	r.env.client(c.host, fmt.Sprintf("%s-%d", program, index), c.serve)
	return c
}

// depth returns how many requests may be in flight: one for list walks and for the recycled
// program, which reuses the same memory for each request.
func (c *chainClient) depth() int {
	if c.program == chainList || c.program == chainRecycled {
		return 1
	}
	return c.run.plan.depth
}

// answers returns the largest number of answers to one request.
func (c *chainClient) answers() int {
	if c.program == chainList {
		return 1
	}
	return c.run.plan.probes + 1
}

func (c *chainClient) serve(ctx verbs.Context) error {
	p := c.run.plan
	recvs := c.depth() * c.answers()
	buffer := p.depth*p.value + p.depth*chainAskLen
	var err error
	c.end, err = newEndsOf(ctx, verbs.QPInit{MaxSendWR: p.depth + 1, MaxRecvWR: recvs}, buffer, recvs+p.depth+2, verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		return err
	}
	remotes, err := c.run.env.dial(c.run.env.rack.Host(c.host), ctx, c.end.qp, chainService, p.params, remoteOf(c.end.mr).appendTo([]byte{byte(c.index)}))
	if err != nil {
		return err
	}
	c.base = remotes[0].addr
	for c.asked < p.rounds || len(c.wants) > 0 {
		for c.asked < p.rounds && max(len(c.wants), c.sends) < c.depth() {
			if err := c.ask(); err != nil {
				return err
			}
		}
		alive, err := c.await()
		if err != nil || !alive {
			return err
		}
		if c.draw.chance(0.2) {
			c.end.rt.Sleep(c.draw.span(0, 200*time.Microsecond))
		}
	}
	return nil
}

// ask sends a request for a key, which the server may have or not have.
func (c *chainClient) ask() error {
	p := c.run.plan
	for ; c.spare < c.depth()*c.answers(); c.spare++ {
		if err := c.end.qp.PostRecv(verbs.RecvWR{}); err != nil {
			return err
		}
	}
	w, key, places := c.choose()
	if c.depth() > 1 {
		w.slot = c.asked % p.depth
	}
	c.asked++
	clear(c.end.buf[w.slot*p.value:][:p.value])
	off := p.depth*p.value + w.slot*chainAskLen
	request := c.run.server.ask(nil, c.base, c.program, key, places)
	copy(c.end.buf[off:], request)
	c.wants = append(c.wants, w)
	c.sends++
	return c.end.qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{c.end.mr.SGE(off, len(request))}})
}

// choose draws a key and the places (indices of buckets or nodes) in which the program looks for
// it. w says which answer is right.
func (c *chainClient) choose() (w *chainWant, key redn.Operand, places []int) {
	s, d := c.run.server, c.draw
	w = &chainWant{place: -1}
	key = redn.Operand(1 + d.Uint64N(1<<48-1))
	if c.program == chainList {
		list := d.IntN(len(s.lists))
		if n := len(s.lists[list]); n > 0 && d.chance(0.7) {
			key = s.lists[list][d.IntN(n)]
		}
		at := slices.Index(s.lists[list], key)
		w.place = s.node(list, len(s.lists[list]))
		if at >= 0 {
			w.hits, w.place = 1, s.node(list, at)
		}
		return w, key, []int{s.node(list, 0)}
	}
	for range c.run.plan.probes {
		places = append(places, d.IntN(len(s.keys)))
	}
	if k := s.keys[one(d, places...)]; k != 0 && d.chance(0.7) {
		key = k
	}
	for _, place := range places {
		if s.keys[place] == key {
			w.hits, w.place = w.hits+1, place
		}
	}
	return w, key, places
}

// await handles completions. It returns false when the connection has ended in a way that the
// faults allow.
func (c *chainClient) await() (alive bool, err error) {
	var wcs [8]verbs.WC
	n, err := c.end.await(wcs[:], chainPatience)
	if err != nil {
		return c.silent(err)
	}
	for i := range wcs[:n] {
		wc := &wcs[i]
		switch {
		case wc.Status != verbs.Success && c.run.mayBreak(wc.Status):
			c.run.broken++
			return false, nil
		case wc.Status != verbs.Success:
			return false, fmt.Errorf("request %d ends with %v", c.asked, wc.Status)
		case wc.Opcode == verbs.WCRecvWriteImm:
			if err := c.answer(wc); err != nil {
				return false, err
			}
		default:
			c.sends--
		}
	}
	return true, nil
}

// silent is called when a request got no answer. If the server may have crashed, or links lose
// packets, silent posts one more SEND. The missing answer is no error if this SEND fails because
// the server does not acknowledge it (mayBreak).
func (c *chainClient) silent(err error) (bool, error) {
	if !c.run.crashed() && !lossy(c.run.plan.rules) {
		return false, err
	}
	wc, err := c.end.do(verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{c.end.mr.SGE(0, 1)}})
	if err == nil && !c.run.mayBreak(wc.Status) {
		err = fmt.Errorf("a request has no answer, and the server is there: %v", wc.Status)
	}
	c.run.broken++
	return false, err
}

// answer compares an answer of the server with what the oldest request in flight must get.
func (c *chainClient) answer(wc *verbs.WC) error {
	c.spare--
	if len(c.wants) == 0 {
		return fmt.Errorf("an answer without a request: immediate data %d", wc.Imm)
	}
	w := c.wants[0]
	last := wc.Imm == redn.Miss || c.program == chainList
	if wc.Imm == redn.Hit {
		w.got++
	}
	if w.got > w.hits || wc.Imm > redn.Hit {
		return fmt.Errorf("request %d: answer %d, immediate data %d; the key is in %d places", c.asked, w.got, wc.Imm, w.hits)
	}
	if !last {
		return nil
	}
	c.wants = c.wants[1:]
	c.run.answered++
	if c.run.failed && !c.run.crashed() {
		c.run.unserved++
	}
	if w.got < w.hits {
		c.run.stale++
		if c.run.plan.published {
			return nil
		}
		return fmt.Errorf("request %d: %d answers with a value; the key is in %d places", c.asked, w.got, w.hits)
	}
	c.run.hits += min(w.got, 1)
	p := c.run.plan
	want := make([]byte, p.value)
	if w.place >= 0 {
		want = c.run.server.value(w.place)
	}
	if got := c.end.buf[w.slot*p.value:][:p.value]; !bytes.Equal(got, want) {
		return fmt.Errorf("request %d: the value is % x, and must be % x", c.asked, got[:min(16, len(got))], want[:min(16, len(want))])
	}
	return nil
}
