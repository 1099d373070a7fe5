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
	*session
	lanes
	qps    []verbs.QP
	index  map[wire.QPN]int // the index in qps of each queue pair
	ah     verbs.AH         // of the server; nil if the lanes are not of UD
	remote []laneEnd        // the server's ends of the lanes
	laneCQ verbs.CQ         // completion queue of sends of all lanes
	words  int              // offset in local memory of the words that are written to the report or read from it
	posted []int            // number of posted messages, by lane
	done   []int            // number of completed messages, by lane
	sent   int              // number of posted messages on all lanes
	ended  int              // number of completed messages on all lanes
	credits
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
func planLanes(c *Config) plan {
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
	f := &laneClient{session: s, lanes: l, index: make(map[wire.QPN]int), posted: make([]int, l.n), done: make([]int, l.n), credits: credits{total: c.receives() * l.n}, words: slots * c.Size}
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
	gid := verbs.GIDOf(f.to)
	p := f.cfg.params()
	table, err := f.readTable()
	if err != nil {
		return err
	}
	if f.laneCQ, err = f.ctx.CreateCQ(f.n * (f.cfg.Depth + 1)); err != nil {
		return err
	}
	f.undo = append(f.undo, f.laneCQ.Destroy)
	answer := make([]uint64, f.n)
	for i := range f.n {
		qp, err := f.pd.CreateQP(verbs.QPInit{Type: laneTypes[f.kind], SendCQ: f.laneCQ, RecvCQ: f.rcq, MaxSendWR: f.cfg.Depth + 1, MaxRecvWR: 2, MaxSGE: 1, MaxInline: f.cfg.Inline})
		if err != nil {
			return err
		}
		f.undo = append(f.undo, qp.Destroy)
		f.qps = append(f.qps, qp)
		f.index[qp.QPN()] = i
		own, err := rdmacm.LocalEndpoint(f.ctx, qp, f.to, p)
		if err != nil {
			return err
		}
		remote := unpackLane(table[i])
		f.remote = append(f.remote, remote)
		if err := f.start(f.ctx, qp, own, remote, gid, p); err != nil {
			return err
		}
		if f.kind == ConnUD && f.ah == nil {
			if f.ah, err = addressOf(f.ctx, f.pd, gid, own.GID); err != nil {
				return err
			}
			f.undo = append(f.undo, f.ah.Destroy)
		}
		answer[i] = laneEnd{own.QPN, own.PSN, own.MTU}.pack()
	}
	for i, w := range append(answer, 1) {
		if err := f.writeReport(laneAnswer(f.n, i), w); err != nil {
			return err
		}
	}
	return f.awaitReport(reportReady, 1)
}

func (f *laneClient) readTable() ([]uint64, error) {
	err := f.word(verbs.OpRead, laneTable(0), 8*f.n)
	table := make([]uint64, f.n)
	for i := range table {
		table[i] = nativeWord(f.buf[f.words+8*i:])
	}
	return table, err
}

func (f *laneClient) writeReport(off int, v uint64) error {
	binary.NativeEndian.PutUint64(f.buf[f.words:], v)
	return f.word(verbs.OpWrite, off, 8)
}

// word executes op, a WRITE or a READ, on n bytes at offset `off` of the server's report, which is
// a memory region. The local bytes are at f.words.
func (f *laneClient) word(op verbs.WROpcode, off, n int) error {
	return f.once("exchange of queue pairs", op, f.mr.SGE(f.words, n), f.far.report, off)
}

// reliable reports whether the completion of a send means that the message has arrived.
func (f *laneClient) reliable() bool { return f.kind == ConnRC }

// bandwidth sends all messages, over the lanes in turn.
func (f *laneClient) bandwidth(c *Config, slots int, res *Result) error {
	m := &meter{s: f.session, total: c.Iters}
	m.start()
	err := f.stream(c, slots, m)
	m.part = f.ended
	if err == nil && !f.reliable() {
		err = f.settle(c.Iters)
		m.part = f.taken
	}
	m.stop()
	m.result(c, res)
	res.Sent, res.Lost = f.sent, f.sent-m.count
	if err != nil {
		return err
	}
	if f.reliable() {
		return f.checkReport(c.Iters, res)
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
		m.seen(f.rt.Now(), f.ended)
		switch {
		case f.ended > before:
		case f.ended < f.sent:
			if err := f.wait(f.laneCQ, "send", f.ended); err != nil {
				return err
			}
		default: // there are no credits, and no message is in flight
			if err := f.earn(); err != nil {
				return err
			}
		}
		f.Tell("send", f.ended, c.Iters)
	}
	return nil
}

// room reports whether the next message can be posted now. It can if the window of its lane has
// room, its slot is free, and the server probably has a receive for it.
func (f *laneClient) room(c *Config, slots int) bool {
	i := f.sent % f.n
	if f.posted[i]-f.done[i] >= c.Depth || c.Verify && f.sent-f.ended >= slots {
		return false
	}
	return f.reliable() || f.sent-f.taken-f.writtenOff < f.credits.total
}

// post posts messages that follow one another on the same lane: at least one, and at most a batch.
func (f *laneClient) post(c *Config, slots int) error {
	i := f.sent % f.n
	f.batch = f.batch[:0]
	for len(f.batch) == 0 || len(f.batch) < postBatch && f.sent < c.Iters && f.sent%f.n == i && f.room(c, slots) {
		f.batch = append(f.batch, f.next(c, slots))
	}
	err := f.qps[i].PostSend(f.batch...)
	if err == nil {
		return nil
	}
	refused := len(f.batch)
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
	i, k := f.sent%f.n, f.sent%slots
	if c.Verify && c.Test != SendLat { // in a latency test, session.echoes fills the slot before the measured time
		f.pat.Fill(f.slot(k), uint64(f.sent))
	}
	wr := verbs.SendWR{ID: uint64(f.posted[i]), Op: verbs.OpSendImm, Imm: uint32(f.sent), SGL: f.sges[k : k+1]}
	if (f.posted[i]+1)%c.SignalEvery == 0 || f.sent+f.n >= c.Iters || f.posted[i]-f.done[i] == c.Depth-1 || !f.reliable() {
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
	if f.cfg.Inline > 0 && int(wr.SGL[0].Length) <= f.cfg.Inline {
		wr.Flags |= verbs.Inline
		wr.Data = f.local(wr.SGL[0])
		wr.SGL = nil
	}
}

// collect takes completions from the queue. A completion means that all earlier messages of the
// same lane are complete, too.
func (f *laneClient) collect() error {
	n, err := f.laneCQ.Poll(f.wcs[:])
	if err != nil {
		return err
	}
	for j := range f.wcs[:n] {
		wc := &f.wcs[j]
		i, known := f.index[wc.QPN]
		switch {
		case !known:
			return fmt.Errorf("send: completion of queue pair %#x, which this run does not have", wc.QPN)
		case wc.Status != verbs.Success:
			return &CompletionError{Op: "send", Msg: wc.ID*uint64(f.n) + uint64(i), Status: wc.Status, Vendor: wc.VendorErr}
		case int(wc.ID) < f.done[i] || int(wc.ID) >= f.posted[i]:
			return fmt.Errorf("send: completion %d of lane %d arrived after that of %d: order is broken", wc.ID, i, f.done[i]-1)
		}
		f.ended += int(wc.ID) + 1 - f.done[i]
		f.done[i] = int(wc.ID) + 1
	}
	if !f.reliable() && f.cfg.Iters > f.credits.total && f.sent-f.taken-f.writtenOff >= f.credits.total/creditParts {
		return f.count()
	}
	return nil
}

// count reads from the server's report how many messages the server has received.
func (f *laneClient) count() error {
	rep, err := f.readReport()
	if err != nil {
		return err
	}
	if n := int(word(&rep, reportCount)); n != f.taken {
		f.taken, f.progressAt = n, f.rt.Now()
		f.writtenOff = min(f.writtenOff, f.sent-n)
	}
	return nil
}

// earn reads the server's count once, to get credits. The client gets credits if the server has
// received more messages. If the count has not changed for lossPause, the missing messages count as
// lost and give credits, too. Otherwise earn sleeps for a while.
func (f *laneClient) earn() error {
	if f.progressAt == 0 {
		f.progressAt = f.rt.Now()
	}
	before := f.taken
	if err := f.count(); err != nil || f.taken != before {
		return err
	}
	if f.cfg.Cancelled != nil && f.cfg.Cancelled() {
		return ErrCancelled
	}
	if f.rt.Now().Sub(f.progressAt) > lossPause {
		f.writtenOff, f.progressAt = f.sent-f.taken, 0
		return nil
	}
	f.rt.Sleep(reportPoll)
	return nil
}

// settle waits until the server has received all messages, or the missing ones count as lost.
func (f *laneClient) settle(total int) error {
	f.progressAt, f.writtenOff = 0, 0
	for f.taken < total && f.writtenOff == 0 {
		if err := f.earn(); err != nil {
			return err
		}
	}
	return nil
}

// judgeReport READs the server's report, and returns an error if the server has received a wrong
// message.
func (f *laneClient) judgeReport(res *Result) error {
	rep, err := f.readReport()
	if err != nil {
		return err
	}
	return f.judge(&rep, "", res)
}

// pingPong sends messages over the only lane of the test and waits for the echo of each. The
// latency is half of the time from the post to the echo.
func (f *laneClient) pingPong(c *Config, res *Result) error {
	off, room := f.words+laneBytes(f.n), f.lanes.room()
	err := f.echoes(c, f.qps[0], f.mr.SGE(off, c.Size+room), res, func(k int) error {
		if err := f.post(c, 1); err != nil {
			return err
		}
		for f.ended < f.sent {
			if err := f.collect(); err != nil {
				return err
			}
			if f.ended < f.sent {
				if err := f.wait(f.laneCQ, "send", k); err != nil {
					return err
				}
			}
		}
		return f.awaitEcho(c, k, f.buf[off+room:][:c.Size], true, res)
	})
	if err != nil {
		return err
	}
	res.Sent = f.sent
	return f.judgeReport(res)
}
