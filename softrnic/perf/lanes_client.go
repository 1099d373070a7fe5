package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// laneClient is the client's side of lanes, the additional queue pairs of a SEND test: one thread
// that uses all of them in turn.
type laneClient struct {
	s       *session
	lanes   lanes
	qps     []verbs.QP
	index   map[wire.QPN]int // the index in qps of each queue pair
	ah      verbs.AH         // of the server; nil if the lanes are not of UD
	remote  []laneEnd        // the server's ends of the lanes
	laneCQ  verbs.CQ         // completion queue of sends of all lanes
	words   int              // offset in local memory of the words that are written to the report or read from it
	posted  []int            // number of posted messages, by lane
	done    []int            // number of completed messages, by lane
	sent    int              // number of posted messages on all lanes
	ended   int              // number of completed messages on all lanes
	credits credits
}

// credits limits the number of messages in flight to the number of the server's receives, for
// transport services without acknowledgements.
type credits struct {
	total int // number of the server's receives on all lanes
	// taken is the number of messages that the server has reported as received. writtenOff is the
	// number of messages that count as lost.
	taken, writtenOff int
	// progressAt is when taken changed last; 0 means that the time is not known.
	progressAt clock.Time
}

const (
	// lossPause is how long the server's count of messages must stay the same before the messages
	// that are missing in it count as lost.
	lossPause = 20 * time.Millisecond
	// The client reads the server's count whenever it has used 1/creditParts of its credits. It does
	// not read the count if the credits are enough for all messages.
	creditParts = 2
)

// planLanes is the plan of a SEND test over lanes.
func (c *Config) planLanes() plan {
	l, _ := c.lanes()
	mode := modeSink
	if c.Test == SendLat {
		mode = modeEcho
	}
	slots := c.hotSlots()
	if c.Verify {
		slots = c.Depth * c.QPs
	}
	w := request{mode: mode, size: c.Size, recvs: c.receives(), seed: c.Seed, verify: c.Verify, lanes: l, rnrTimer: c.timer()}
	if mode == modeEcho {
		slots, w.recvs = 1, echoReceives
	}
	local := slots*c.Size + // memory for the messages
		laneBytes(c.QPs) + // words in which client and server exchange the lanes' attributes
		l.room() + c.Size + // a receive for the message that the server echoes
		reportSize // a copy of the server's report
	return plan{local: local, slot: c.Size, request: w, run: func(s *session, res *Result) error { return s.runLanes(c, l, slots, res) }}
}

// runLanes makes the lanes and runs the test on them.
func (s *session) runLanes(c *Config, l lanes, slots int, res *Result) error {
	f := &laneClient{s: s, lanes: l, index: make(map[wire.QPN]int), posted: make([]int, l.n), done: make([]int, l.n), credits: credits{total: c.receives() * l.n}, words: slots * c.Size}
	if most := int(s.ctx.Device().ActiveMTU); l.kind == ConnUD && c.Size > most {
		return fmt.Errorf("a datagram of %d bytes: this link holds %d at most", c.Size, most)
	}
	if err := f.open(); err != nil {
		return err
	}
	if c.Test == SendLat {
		return f.pingPong(c, res)
	}
	return f.bandwidth(c, slots, res)
}

// open makes the lanes, exchanges with the server the tables of the lanes' ends (laneEnd), and
// waits until the server is ready. The channel destroys the lanes at its end.
func (f *laneClient) open() error {
	gid := verbs.GIDOf(f.s.to)
	p := f.s.cfg.params()
	table, err := f.readTable()
	if err != nil {
		return err
	}
	if f.laneCQ, err = f.s.ctx.CreateCQ(f.lanes.n * (f.s.cfg.Depth + 1)); err != nil {
		return err
	}
	f.s.undo = append(f.s.undo, f.laneCQ.Destroy)
	answer := make([]uint64, f.lanes.n)
	for i := range f.lanes.n {
		qp, err := f.s.pd.CreateQP(verbs.QPInit{Type: laneTypes[f.lanes.kind], SendCQ: f.laneCQ, RecvCQ: f.s.rcq, MaxSendWR: f.s.cfg.Depth + 1, MaxRecvWR: 2, MaxSGE: 1, MaxInline: f.s.cfg.Inline})
		if err != nil {
			return err
		}
		f.s.undo = append(f.s.undo, qp.Destroy)
		f.qps = append(f.qps, qp)
		f.index[qp.QPN()] = i
		own, err := rdmacm.LocalEndpoint(f.s.ctx, qp, f.s.to, p)
		if err != nil {
			return err
		}
		remote := unpackLane(table[i])
		f.remote = append(f.remote, remote)
		if err := f.lanes.start(f.s.ctx, qp, own, remote, gid, p); err != nil {
			return err
		}
		if f.lanes.kind == ConnUD && f.ah == nil {
			if f.ah, err = addressOf(f.s.ctx, f.s.pd, gid, own.GID); err != nil {
				return err
			}
			f.s.undo = append(f.s.undo, f.ah.Destroy)
		}
		answer[i] = laneEnd{own.QPN, own.PSN, own.MTU}.pack()
	}
	for i, w := range append(answer, 1) {
		if err := f.writeReport(laneAnswer(f.lanes.n, i), w); err != nil {
			return err
		}
	}
	return f.s.awaitReport(reportReady, 1)
}

func (f *laneClient) readTable() ([]uint64, error) {
	err := f.word(verbs.OpRead, laneTable(0), 8*f.lanes.n)
	table := make([]uint64, f.lanes.n)
	for i := range table {
		table[i] = nativeWord(f.s.buf[f.words+8*i:])
	}
	return table, err
}

func (f *laneClient) writeReport(off int, v uint64) error {
	binary.NativeEndian.PutUint64(f.s.buf[f.words:], v)
	return f.word(verbs.OpWrite, off, 8)
}

// word executes op, a WRITE or a READ, on n bytes at offset `off` of the server's report, which is
// a memory region. The local bytes are at f.words.
func (f *laneClient) word(op verbs.WROpcode, off, n int) error {
	return f.s.once("exchange of queue pairs", op, f.s.mr.SGE(f.words, n), f.s.far.report, off)
}

// reliable reports whether the completion of a send means that the message has arrived.
func (f *laneClient) reliable() bool { return f.lanes.kind == ConnRC }

// bandwidth sends all messages, over the lanes in turn.
func (f *laneClient) bandwidth(c *Config, slots int, res *Result) error {
	m := &meter{s: f.s, total: c.Iters}
	m.start()
	err := f.stream(c, slots, m)
	m.part = f.ended
	if err == nil && !f.reliable() {
		err = f.settle(c.Iters)
		m.part = f.credits.taken
	}
	m.stop()
	m.result(c, res)
	res.Sent, res.Lost = f.sent, f.sent-m.count
	if err != nil {
		return err
	}
	if f.reliable() {
		return f.s.checkReport(c.Iters, res)
	}
	return f.judgeReport(res)
}

// stream posts all messages and waits for their completions.
func (f *laneClient) stream(c *Config, slots int, m *meter) error {
	for f.ended < c.Iters {
		for f.sent < c.Iters && f.room(c, slots) {
			if err := f.post(c, slots); err != nil {
				return err
			}
		}
		before := f.ended
		if err := f.collect(); err != nil {
			return err
		}
		m.seen(f.s.rt.Now(), f.ended)
		switch {
		case f.ended > before:
		case f.ended < f.sent:
			if err := f.s.wait(f.laneCQ, "send", f.ended); err != nil {
				return err
			}
		default: // there are no credits, and no message is in flight
			if err := f.earn(); err != nil {
				return err
			}
		}
		f.s.Tell("send", f.ended, c.Iters)
	}
	return nil
}

// room reports whether the next message can be posted now. It can if the window of its lane has
// room, its slot is free, and the server probably has a receive for it.
func (f *laneClient) room(c *Config, slots int) bool {
	i := f.sent % f.lanes.n
	if f.posted[i]-f.done[i] >= c.Depth || c.Verify && f.sent-f.ended >= slots {
		return false
	}
	return f.reliable() || f.sent-f.credits.taken-f.credits.writtenOff < f.credits.total
}

// post posts messages that follow one another on the same lane: at least one, and at most a batch.
func (f *laneClient) post(c *Config, slots int) error {
	i := f.sent % f.lanes.n
	f.s.batch = f.s.batch[:0]
	for len(f.s.batch) == 0 || len(f.s.batch) < postBatch && f.sent < c.Iters && f.sent%f.lanes.n == i && f.room(c, slots) {
		f.s.batch = append(f.s.batch, f.next(c, slots))
	}
	err := f.qps[i].PostSend(f.s.batch...)
	if err == nil {
		return nil
	}
	refused := len(f.s.batch)
	var op *verbs.OpError
	if errors.As(err, &op) {
		refused -= op.Index
	}
	f.posted[i] -= refused
	f.sent -= refused
	return fmt.Errorf("send %d: %w", f.sent, err)
}

// next returns the work request that sends the next message. The caller posts it.
func (f *laneClient) next(c *Config, slots int) verbs.SendWR {
	i, k := f.sent%f.lanes.n, f.sent%slots
	if c.Verify && c.Test != SendLat { // in a latency test, session.echoes fills the slot before the measured time
		f.s.pat.Fill(f.s.slot(k), uint64(f.sent))
	}
	wr := verbs.SendWR{ID: uint64(f.posted[i]), Op: verbs.OpSendImm, Imm: uint32(f.sent), SGL: f.s.sges[k : k+1]}
	if (f.posted[i]+1)%c.SignalEvery == 0 || f.sent+f.lanes.n >= c.Iters || f.posted[i]-f.done[i] == c.Depth-1 || !f.reliable() {
		wr.Flags |= verbs.Signalled
	}
	f.aim(&wr, i)
	f.posted[i]++
	f.sent++
	return wr
}

func (f *laneClient) aim(wr *verbs.SendWR, i int) {
	if f.ah != nil {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = f.ah, f.remote[i].qpn, laneQKey
	}
	if f.s.cfg.Inline > 0 && int(wr.SGL[0].Length) <= f.s.cfg.Inline {
		wr.Flags |= verbs.Inline
		wr.Data = f.s.local(wr.SGL[0])
		wr.SGL = nil
	}
}

// collect takes completions from the queue. A completion means that all earlier messages of the
// same lane are complete, too.
func (f *laneClient) collect() error {
	n, err := f.laneCQ.Poll(f.s.wcs[:])
	if err != nil {
		return err
	}
	for j := range f.s.wcs[:n] {
		wc := &f.s.wcs[j]
		i, known := f.index[wc.QPN]
		switch {
		case !known:
			return fmt.Errorf("send: completion of queue pair %#x, which this run does not have", wc.QPN)
		case wc.Status != verbs.Success:
			return &CompletionError{Op: "send", Msg: wc.ID*uint64(f.lanes.n) + uint64(i), Status: wc.Status, Vendor: wc.VendorErr}
		case int(wc.ID) < f.done[i] || int(wc.ID) >= f.posted[i]:
			return fmt.Errorf("send: completion %d of lane %d arrived after that of %d: order is broken", wc.ID, i, f.done[i]-1)
		}
		f.ended += int(wc.ID) + 1 - f.done[i]
		f.done[i] = int(wc.ID) + 1
	}
	if !f.reliable() && f.s.cfg.Iters > f.credits.total && f.sent-f.credits.taken-f.credits.writtenOff >= f.credits.total/creditParts {
		return f.count()
	}
	return nil
}

// count reads from the server's report how many messages the server has received.
func (f *laneClient) count() error {
	rep, err := f.s.readReport()
	if err != nil {
		return err
	}
	if n := int(word(&rep, reportCount)); n != f.credits.taken {
		f.credits.taken, f.credits.progressAt = n, f.s.rt.Now()
		f.credits.writtenOff = min(f.credits.writtenOff, f.sent-n)
	}
	return nil
}

// earn reads the server's count once, to get credits. The client gets credits if the server has
// received more messages. If the count has not changed for lossPause, the missing messages count as
// lost and give credits, too. Otherwise earn sleeps for a while.
func (f *laneClient) earn() error {
	if f.credits.progressAt == 0 {
		f.credits.progressAt = f.s.rt.Now()
	}
	before := f.credits.taken
	if err := f.count(); err != nil || f.credits.taken != before {
		return err
	}
	if f.s.cfg.Cancelled != nil && f.s.cfg.Cancelled() {
		return ErrCancelled
	}
	if f.s.rt.Now().Sub(f.credits.progressAt) > lossPause {
		f.credits.writtenOff, f.credits.progressAt = f.sent-f.credits.taken, 0
		return nil
	}
	f.s.rt.Sleep(reportPoll)
	return nil
}

// settle waits until the server has received all messages, or the missing ones count as lost.
func (f *laneClient) settle(total int) error {
	f.credits.progressAt, f.credits.writtenOff = 0, 0
	for f.credits.taken < total && f.credits.writtenOff == 0 {
		if err := f.earn(); err != nil {
			return err
		}
	}
	return nil
}

// judgeReport READs the server's report, and returns an error if the server has received a wrong
// message.
func (f *laneClient) judgeReport(res *Result) error {
	rep, err := f.s.readReport()
	if err != nil {
		return err
	}
	return f.s.judge(&rep, "", res)
}

// pingPong sends messages over the only lane of the test and waits for the echo of each. The
// latency is half of the time from the post to the echo.
func (f *laneClient) pingPong(c *Config, res *Result) error {
	off, room := f.words+laneBytes(f.lanes.n), f.lanes.room()
	err := f.s.echoes(c, f.qps[0], f.s.mr.SGE(off, c.Size+room), res, func(k int) error {
		if err := f.post(c, 1); err != nil {
			return err
		}
		for f.ended < f.sent {
			if err := f.collect(); err != nil {
				return err
			}
			if f.ended < f.sent {
				if err := f.s.wait(f.laneCQ, "send", k); err != nil {
					return err
				}
			}
		}
		return f.s.awaitEcho(c, k, f.s.buf[off+room:][:c.Size], true, res)
	})
	if err != nil {
		return err
	}
	res.Sent = f.sent
	return f.judgeReport(res)
}
