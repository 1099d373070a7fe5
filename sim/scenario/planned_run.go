package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
)

// smallRun is one run of a small setup (two clients, two words) under a schedule of the adversary.
type smallRun struct {
	env     *env
	setup   *smallSetup
	forward bool // the switch has no rules; see outcomeOf.excused
	adv     adversary
	cover   coverage
	memory  []byte
	wordsAt int // offset of word x; word y follows it
	log     history.Log
	clients [2]*smallClient
}

const (
	smallService = "small"
	// smallReady is when the adversary begins to act: by then all connections are made and were
	// used.
	smallReady = clock.Time(40 * time.Millisecond)
	// smallPatience is how long a client waits for a connection or a completion. All retries take
	// less.
	smallPatience = time.Second
)

// smallParams are the parameters of all connections. With them, a requester retries for at least 33
// ms.
var smallParams = rdmacm.Params{Timeout: 10, RdAtomic: 4}

// play builds the rack, runs it, and returns the error that judge finds.
func (r *smallRun) play(s *rackfile.Rack) error {
	e := r.env
	e.spy = r.adv.delivered
	opt := simrack.Options{Datagrams: true, Window: r.setup.window, Wrap: r.watch, Program: r.makeProgram}
	if err := e.buildOf(s, opt); err != nil {
		return err
	}
	r.adv.install(e.rack)
	r.adv.rules = r.setRules
	r.memory = make([]byte, smallMemory)
	for w := range smallWords {
		r.log.Add([...]string{"x", "y"}[w], 0)
	}
	if !r.forward {
		r.setRules(0)
	}
	e.serveWords(r.memory, smallService, smallParams, func(mr verbs.MR) { r.placeWords(mr.Addr()) })
	for i := range r.clients {
		c := &smallClient{run: r, id: i, host: e.rack.Hosts()[i]}
		r.clients[i] = c
		e.client(c.host.Spec.Name, "small", c.work)
	}
	e.rack.At(smallReady, func() { r.adv.on = true })
	if err := e.rack.Run(); err != nil {
		return err
	}
	e.report.Virtual = e.rack.Now().Sub(clock.Time(0))
	r.adv.release()
	if err := e.rack.Settle(settleTime); err != nil {
		return err
	}
	return r.judge()
}

// makeProgram makes the switch's program. Its tables are small, because clearing large ones would
// take longer than a run. It has no journal (which a switch reads after a crash), because the
// switch does not crash.
func (r *smallRun) makeProgram(s *rackfile.Rack) (pipeline.Program, error) {
	return apps.New(s, apps.Config{Rand: newDraw(r.env.seed).Rand, Connections: 16})
}

// watch puts r.cover, which records transitions of state tables, around the switch.
func (r *smallRun) watch(name string, n simnet.Node) simnet.Node {
	if name != rackfile.SwitchName || r.forward {
		return n
	}
	r.cover.Node, r.cover.run = n, r
	return &r.cover
}

func (r *smallRun) program() *swordbox.Program {
	p, _ := r.env.rack.Program().(*swordbox.Program)
	return p
}

// setRules gives the switch the n-th list of rules of the setup, unless the run is without rules.
func (r *smallRun) setRules(n int) {
	if r.forward || n >= len(r.setup.rules) {
		return
	}
	var list []rules.Rule
	var err error
	if text := r.setup.rules[n]; text != "" {
		list = make([]rules.Rule, 1)
		list[0], err = r.env.rack.Rule(text)
	}
	if err == nil {
		err = r.env.rack.SetRules(list...)
	}
	if err != nil {
		r.env.fail("rules: %w", err)
	}
}

// placeWords chooses the place of word x, which word y follows, such that requests for x take the
// first shared connection and requests for y the second.
func (r *smallRun) placeWords(base uint64) {
	const shards = 2
	for r.wordsAt = longWord; r.wordsAt+16 <= farAt; r.wordsAt += 8 { // a long WRITE begins longWord bytes before x
		x := base + uint64(r.wordsAt)
		if serialize.ShardOf(x, shards) == 0 && serialize.ShardOf(x+8, shards) == 1 {
			return
		}
	}
	r.env.fail("no two neighbours have different shards")
}

// judge checks the run. One order of the operations must explain the answers to the clients and end
// with the present contents of memory, and the switch's tables must be right. This must also hold
// if a client has died: its requests without an answer may have been executed or not. If nothing
// else is wrong and a client has died, judge returns a deadClientError.
func (r *smallRun) judge() error {
	if err := r.damage(); err != nil {
		return err
	}
	for _, c := range r.clients {
		if c.failed != nil {
			return &deadClientError{c.id, c.failed}
		}
	}
	return nil
}

// damage returns an error for a wrong answer, a wrong word in memory or a wrong value in the
// switch's tables.
func (r *smallRun) damage() error {
	if err := r.log.Check(r.final, history.MostSteps); err != nil {
		return err
	}
	for _, c := range r.clients {
		for slot, want := range c.far {
			if got := r.word(c.farOff(slot)); got < want || got > want && (c.failed == nil || got > c.farLast[slot]) {
				return fmt.Errorf("client %d: slot %d of its own memory is %d, and its last WRITE there, of %d, was acknowledged", c.id, slot, got, want)
			}
		}
	}
	return r.beliefs()
}

// deadClientError is the error of a client whose queue pair has failed.
type deadClientError struct {
	client int
	err    error
}

func (e *deadClientError) Error() string {
	return fmt.Sprintf("client %d died: %v", e.client, e.err)
}

func (e *deadClientError) Unwrap() error { return e.err }

// beliefs compares the values that the switch's tables have for words at the end of the run with
// the memory. No request may be in flight, queued or held then.
func (r *smallRun) beliefs() error {
	p := r.program()
	if p == nil {
		return nil
	}
	mr := r.clients[0].mem
	for _, h := range p.Report(r.env.rack.Now()).Handlers {
		for _, w := range h.Words {
			off := w.VA - mr.addr
			if w.State == atomiccache.Known.String() && w.Pending == 0 && off < smallMemory && r.word(int(off)) != w.Value {
				return fmt.Errorf("the switch believes that the word at +%d is %#x, and it is %#x", off, w.Value, r.word(int(off)))
			}
			if w.Pending != 0 {
				return fmt.Errorf("at rest, %d operations are pending on the word at +%d", w.Pending, off)
			}
		}
		for _, s := range h.Shared {
			if s.Outstanding+s.Queued > 0 {
				return fmt.Errorf("at rest, %d requests are in flight and %d queued on the shared connection of shard %d", s.Outstanding, s.Queued, s.Shard)
			}
		}
		for _, c := range h.Counters {
			if c.Name == "held_now" && c.Value > 0 {
				return fmt.Errorf("at rest, the switch holds %d requests", c.Value)
			}
		}
	}
	return nil
}

func (r *smallRun) word(off int) uint64 { return binary.NativeEndian.Uint64(r.memory[off:]) }

// final returns the value that word w has in memory at the end of the run.
func (r *smallRun) final(w int) (uint64, bool) { return r.word(r.wordsAt + 8*w), true }

type smallClient struct {
	run  *smallRun
	id   int
	host *simrack.Host
	end  *ends
	mem  remote
	// far has, for each slot of the memory that only this client uses, the value of the last WRITE
	// that was acknowledged; farLast that of the last WRITE that was posted.
	far, farLast map[int]uint64
	failed       error
	wcs          [64]verbs.WC
}

// farOff returns the offset of a slot of the memory that only this client uses.
func (c *smallClient) farOff(slot int) int { return farAt + (c.id*farSlots+slot)*farStep }

const (
	// opBytes is the length of the local memory of a request, unless the setup has long WRITEs.
	opBytes = 16
	// A long WRITE takes three packets of up to longMTU bytes. Word x is the end of its second
	// packet, and word y the beginning of its third.
	longMTU   = 256
	longBytes = 2*longMTU + 16
	longWord  = 2*longMTU - 8
)

// stride is the length of a request's local memory.
func (c *smallClient) stride() int {
	if c.run.setup.mtu != 0 {
		return longBytes
	}
	return opBytes
}

// work connects the client, makes the requests that prepare the switch (warm), and waits until
// smallReady, when the adversary begins. Then it executes the script.
func (c *smallClient) work(ctx verbs.Context) error {
	c.far, c.farLast = make(map[int]uint64), make(map[int]uint64)
	warm, script := c.run.setup.warm[c.id], c.run.setup.script[c.id]
	depth := 1
	for _, s := range script {
		depth = max(depth, len(s.ops))
	}
	var err error
	if c.end, err = newEnds(ctx, depth*c.stride(), depth, verbs.LocalWrite); err != nil {
		return err
	}
	rt := c.end.rt
	rt.Sleep(5 * time.Millisecond) // the switch makes its connections first
	params := smallParams
	params.PathMTU = c.run.setup.mtu
	private, err := c.host.ConnManager(ctx).Dial(c.end.qp, c.run.env.rack.Host("ms0").Addr(), smallService, params, nil, rt.Now().Add(smallPatience))
	if err != nil {
		return err
	}
	c.mem = parseRemotes(private)[0]
	for range 2 { // the first requests after a change of rules wait in the switch; those of the second round do not
		if err := c.steps(warm, false); err != nil {
			return fmt.Errorf("before the phase: %w", err)
		}
		rt.Sleep(settled.pause)
	}
	if rt.Now() >= smallReady {
		return errors.New("the phase begins before the client is ready")
	}
	rt.Sleep(smallReady.Sub(rt.Now()))
	c.failed = c.steps(script, true)
	return nil
}

// steps executes steps. With phase, their operations are recorded in the history.
func (c *smallClient) steps(list []step, phase bool) error {
	for i := range list {
		if list[i].pause > 0 && list[i].paced == 0 {
			c.end.rt.Sleep(list[i].pause)
		}
		if err := c.together(&list[i], phase); err != nil {
			return err
		}
	}
	return nil
}

// together posts the requests of a step with one doorbell or, if s.paced is set, in groups of
// s.paced requests with a pause before each group. Then it waits for all answers.
func (c *smallClient) together(s *step, phase bool) error {
	ops := s.ops
	wrs := make([]verbs.SendWR, len(ops))
	ids := make([][]history.ID, len(ops))
	for i := range ops {
		wrs[i] = c.request(i, &ops[i])
		if !phase || ops[i].far {
			continue
		}
		for w := range smallWords {
			if ops[i].both || ops[i].long || ops[i].word == w {
				ids[i] = append(ids[i], c.run.log.Invoke(w, c.id, ops[i].Op))
			}
		}
	}
	for todo := wrs; len(todo) > 0; {
		n := len(todo)
		if s.paced > 0 {
			c.end.rt.Sleep(s.pause)
			n = min(n, s.paced)
		}
		if err := c.end.qp.PostSend(todo[:n]...); err != nil {
			return err
		}
		todo = todo[n:]
	}
	for done := 0; done < len(ops); {
		n, err := c.end.await(c.wcs[:], smallPatience)
		if err != nil {
			return err
		}
		for i := range c.wcs[:n] {
			wc := &c.wcs[i]
			if wc.Status != verbs.Success {
				return fmt.Errorf("%v: %v", ops[wc.ID].Op, wc.Status)
			}
			c.answered(int(wc.ID), &ops[wc.ID], ids[wc.ID])
			done++
		}
	}
	return nil
}

// request makes the work request of the i-th operation of a step.
func (c *smallClient) request(i int, o *wordOp) verbs.SendWR {
	n, off := 8, c.run.wordsAt+8*o.word
	switch {
	case o.long:
		n, off = longBytes, c.run.wordsAt-longWord
	case o.both:
		n, off = 16, c.run.wordsAt
	case o.far:
		off = c.farOff(o.word)
		c.farLast[o.word] = o.Value
	}
	wr := operation(o.Op)
	wr.ID, wr.Flags, wr.SGL = uint64(i), verbs.Signalled, []verbs.SGE{c.end.mr.SGE(i*c.stride(), n)}
	wr.RemoteAddr, wr.RKey = c.mem.addr+uint64(off), c.mem.rkey
	for at := 0; o.Kind == history.Write && at < n; at += 8 {
		binary.NativeEndian.PutUint64(c.end.buf[i*c.stride()+at:], o.Value)
	}
	return wr
}

// answered records the answer to the i-th operation of a step.
func (c *smallClient) answered(i int, o *wordOp, ids []history.ID) {
	if o.far {
		c.far[o.word] = o.Value
	}
	for k, id := range ids {
		v := binary.NativeEndian.Uint64(c.end.buf[i*c.stride()+8*k:])
		if o.Kind == history.Write {
			v = 0
		}
		c.run.log.Return(id, v)
	}
}
