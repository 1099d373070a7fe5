package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	turnsService = "redn-locks"
	// turnsLease is how long after the death of a client the server's process ends the client's
	// connection. Until then the client's lock stays taken.
	turnsLease = 5 * time.Millisecond
	turnsPause = 200 * time.Microsecond // pause of the server's process between two looks at r.gone
	turnsAsk   = 8                      // offset of a client's request in its buffer; the ticket is at offset 0
)

// turnsPlan has the choices that the seed makes for a run of redn-locks.
type turnsPlan struct {
	wirePlan
	locks, clients, rounds int
	dies                   map[int]int // by number of a client that dies: the round in which it dies
	kill                   bool        // the server's process is killed when all clients are connected
}

func (p *turnsPlan) draw(e *env) *turnsPlan {
	d := e.draw
	*p = turnsPlan{locks: d.between(1, 3), clients: d.between(2, 8), rounds: d.between(5, 40), dies: make(map[int]int)}
	if p.kill = d.chance(0.4); !p.kill {
		for range d.IntN(min(3, p.clients)) {
			p.dies[d.IntN(p.clients)] = d.between(0, p.rounds-1)
		}
	}
	p.drawWire(e, passiveHosts(1), nil, 0)
	p.params.RetryCount = 7
	p.rack.Loopback = one(d, 0, d.span(50*time.Nanosecond, 2*time.Microsecond))
	return p
}

func (p *turnsPlan) String() string {
	return fmt.Sprintf("%d locks, %d clients, %d rounds each, die %v, server killed %t; links %s; loopback %v", p.locks, p.clients, p.rounds, p.dies, p.kill, strings.TrimSpace(p.links), p.rack.Loopback)
}

// turnsRun is one run of redn-locks: clients take locks that the NIC of a server hands out.
type turnsRun struct {
	env      *env
	plan     *turnsPlan
	answers  map[int]verbs.QP // queue pairs of the programs' answers, by client
	gone     []int            // clients that died or whose connection has failed: the server must end the connection
	ended    int              // clients that have returned
	holder   []int            // by lock: the client that has it; -1: none
	next     []int64          // by lock: the smallest ticket that the next holder may have
	taken    int              // how often a lock was taken
	unserved int              // how often a lock was taken after the death of the server's process
	broken   int              // clients whose connection has failed
	killed   bool             // the server's process was killed
}

func (p *turnsPlan) run(e *env) error {
	p.draw(e)
	e.report.Plan = p.String()
	if err := e.build(passiveRack(1, computeHosts), p.rack); err != nil {
		return err
	}
	e.setFaults(p.rules)
	r := &turnsRun{env: e, plan: p, answers: make(map[int]verbs.QP), holder: make([]int, p.locks), next: make([]int64, p.locks)}
	for i := range r.holder {
		r.holder[i] = -1
	}
	h := r.env.rack.Host(server)
	h.Go(turnsService, true, func(ctx verbs.Context) {
		if err := r.serve(h, ctx); err != nil {
			r.env.fail("server: %w", err)
		}
	})
	for i := range p.clients {
		c := &turnsClient{run: r, index: i, draw: newDraw(r.env.draw.Uint64())}
		e.client(fmt.Sprintf("cn%d", i%computeHosts), fmt.Sprintf("client-%d", i), c.serve)
	}
	if err := r.env.run(); err != nil {
		return err
	}
	r.env.note("%d locks taken, %d of them after the death of the server's process; %d clients died, %d connections failed", r.taken, r.unserved, len(p.dies), r.broken)
	if n := h.Counters().RingRefused; n > 0 {
		return fmt.Errorf("the server's NIC has refused %d entries", n)
	}
	if want := p.clients * p.rounds; r.broken == 0 && len(p.dies) == 0 && r.taken != want {
		return fmt.Errorf("%d locks were taken, %d requests were made", r.taken, want)
	}
	return nil
}

// serve is the server's process. It makes the locks, and builds the program of each client that
// connects. After that it only ends the connections of clients that have died.
func (r *turnsRun) serve(h *simrack.Host, ctx verbs.Context) error {
	l, pd, err := listen(h, ctx, turnsService)
	if err != nil {
		return err
	}
	locks, err := r.makeLocks(h, ctx, pd)
	if err != nil {
		return err
	}
	for range r.plan.clients {
		req, err := l.Accept(clock.Never)
		if err != nil {
			return err
		}
		private := req.Private()
		client := parseRemotes(private[1:])[0]
		b := (&chainServer{host: h}).newBuild(ctx, pd, redn.LockReceives, client)
		if err := b.lockProgram(redn.MemOf(locks)); err != nil {
			return err
		}
		r.answers[int(private[0])] = b.Last()
		if err := req.Accept(b.Last(), r.plan.params, remoteOf(locks).appendTo(nil), ctx.Runtime().Now().Add(dialPatience)); err != nil {
			return err
		}
		if err := b.Last().PostRecv(b.receives...); err != nil {
			return err
		}
	}
	if r.plan.kill {
		r.env.rack.At(r.env.rack.Now(), func() { r.killed = true; h.CrashApps() })
	}
	for r.ended < r.plan.clients {
		ctx.Runtime().Sleep(turnsPause)
		for len(r.gone) > 0 {
			ctx.Runtime().Sleep(turnsLease)
			if err := r.answers[r.gone[0]].ToError(); err != nil {
				return err
			}
			r.gone = r.gone[1:]
		}
	}
	return nil
}

// makeLocks makes the locks' memory, and the queues by which the NIC hands out the locks, and
// returns the memory.
func (r *turnsRun) makeLocks(h *simrack.Host, ctx verbs.Context, pd verbs.PD) (verbs.MR, error) {
	mr, err := pd.RegMR(nil, r.plan.locks*redn.LockLen, wordAccess)
	if err != nil {
		return nil, err
	}
	b := (&chainServer{host: h}).newBuild(ctx, pd, 1, remote{})
	if b.MR, err = pd.RegMR(nil, chainPool, verbs.LocalWrite); err != nil {
		return nil, err
	}
	for i := range r.plan.locks {
		q, err := b.queue("turns", redn.LockTurnBlocks, verbs.RingInit{Managed: true})
		if err != nil {
			return nil, err
		}
		lock := redn.Lock{Turns: q, Memory: redn.MemOf(mr).At(i*redn.LockLen, redn.LockLen)}
		if err := mr.WriteAt(lock.Build(), i*redn.LockLen); err != nil {
			return nil, err
		}
	}
	return mr, b.Start()
}

// lockProgram builds and starts the program that answers the requests of one client.
func (b *chainBuild) lockProgram(locks redn.Mem) (err error) {
	if b.MR, err = b.PD.RegMR(nil, 4*chainPool, wordAccess); err != nil {
		return err
	}
	if err := b.begin(); err != nil {
		return err
	}
	s := &redn.LockServer{Locks: locks, Client: b.client.At(0, turnsAsk)}
	if s.Worker, s.Answers, err = b.loop(redn.LockWorkerBlocks, redn.LockAnswerBlocks); err != nil {
		return err
	}
	s.Received = b.Received
	receives, err := s.Build(b.Pool)
	if err != nil {
		return err
	}
	s.Start(b.master)
	for _, sges := range receives {
		b.receives = append(b.receives, verbs.RecvWR{SGL: sges})
	}
	if err := b.verify(s.Received, 3*redn.LockReceives/2); err != nil {
		return err
	}
	return b.Start()
}

// turnsClient is a client of redn-locks, which takes and releases locks.
type turnsClient struct {
	run   *turnsRun
	index int
	draw  *draw
	end   *ends
	sends int // SENDs in flight
}

var errTurnsBroken = errors.New("the connection has failed")

func (c *turnsClient) serve(ctx verbs.Context) error {
	p, host := c.run.plan, fmt.Sprintf("cn%d", c.index%computeHosts)
	defer func() { c.run.ended++ }()
	var err error
	if c.end, err = newEndsOf(ctx, verbs.QPInit{MaxSendWR: 4, MaxRecvWR: 2}, 2*turnsAsk, 8, verbs.LocalWrite|verbs.RemoteWrite); err != nil {
		return err
	}
	remotes, err := c.run.env.dial(c.run.env.rack.Host(host), ctx, c.end.qp, turnsService, p.params, remoteOf(c.end.mr).appendTo([]byte{byte(c.index)}))
	if err != nil {
		return err
	}
	last, dies := p.dies[c.index]
	for round := range p.rounds {
		lock := c.draw.IntN(p.locks)
		die := dies && round == last
		if err := c.round(lock, remotes[0].addr, die); errors.Is(err, errTurnsBroken) {
			c.run.broken++
			c.leave()
			return nil
		} else if err != nil {
			return fmt.Errorf("round %d, lock %d: %w", round, lock, err)
		}
		if die {
			return nil
		}
		if c.draw.chance(0.3) {
			c.end.rt.Sleep(c.draw.span(0, 100*time.Microsecond))
		}
	}
	return nil
}

// leave is called when the client dies, or when its connection has failed. The client does not use
// its lock any more, and the server's process must end its connection.
func (c *turnsClient) leave() {
	if i := slices.Index(c.run.holder, c.index); i >= 0 {
		c.run.holder[i] = -1
	}
	c.run.gone = append(c.run.gone, c.index)
}

// round takes a lock and releases it. With die, the client dies: before it requests the lock, while
// it waits for it, or while it has it.
func (c *turnsClient) round(lock int, base uint64, die bool) error {
	r := c.run
	step := -1
	if die {
		step = c.draw.IntN(3)
	}
	if step == 0 {
		c.leave()
		return nil
	}
	if err := c.end.qp.PostRecv(verbs.RecvWR{}); err != nil {
		return err
	}
	copy(c.end.buf[turnsAsk:], redn.AppendTake(nil, base+uint64(lock*redn.LockLen)))
	if err := c.send(turnsAsk); err != nil {
		return err
	}
	if step == 1 {
		c.end.rt.Sleep(c.draw.span(0, 50*time.Microsecond))
		c.leave()
		return nil
	}
	if err := c.until(func() bool { return false }); err != nil {
		return err
	}
	ticket := int64(binary.LittleEndian.Uint64(c.end.buf))
	switch whole := len(r.plan.dies) == 0 && r.broken == 0; {
	case r.holder[lock] >= 0:
		return fmt.Errorf("client %d has the lock, too", r.holder[lock])
	case ticket < r.next[lock], whole && ticket > r.next[lock]:
		return fmt.Errorf("ticket %d, want %d", ticket, r.next[lock])
	}
	r.next[lock], r.holder[lock] = ticket+1, c.index
	r.taken++
	if r.killed {
		r.unserved++
	}
	c.end.rt.Sleep(c.draw.span(0, 30*time.Microsecond))
	if step == 2 {
		c.leave()
		return nil
	}
	r.holder[lock] = -1
	if err := c.send(0); err != nil {
		return err
	}
	return c.until(func() bool { return c.sends == 0 })
}

func (c *turnsClient) send(n int) error {
	c.sends++
	return c.end.qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{c.end.mr.SGE(turnsAsk, n)}})
}

// until handles completions until done returns true, or until the answer to a request has come.
func (c *turnsClient) until(done func() bool) error {
	for !done() {
		var wc [1]verbs.WC
		_, err := c.end.await(wc[:], chainPatience)
		switch {
		case err != nil && c.run.broken > 0 && c.run.killed: // no process ends the connection of a dead client: its lock stays taken
			return errTurnsBroken
		case err != nil:
			return err
		case wc[0].Status == verbs.RetryExcErr && lossy(c.run.plan.rules):
			return errTurnsBroken
		case wc[0].Status != verbs.Success:
			return fmt.Errorf("a request ends with %v", wc[0].Status)
		case wc[0].Opcode == verbs.WCRecvWriteImm:
			return nil
		}
		c.sends--
	}
	return nil
}
