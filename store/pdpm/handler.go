package pdpm

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// handler serves one connection of a client on its own thread, one request after the other.
type handler struct {
	c    *Coordinator
	qp   verbs.QP
	cq   verbs.CQ
	srq  verbs.SRQ     // of this handler alone, so that receives are posted before the client can send
	mr   verbs.MR      // has room for recvs requests, and after them for one answer
	conn *passive.Conn // connections to the memory servers
	wcs  [recvs + 1]verbs.WC
	// came has the receives with a request that is not yet executed, and the lengths of the
	// requests. While sending is true, the NIC may send the previous answer again, so the memory of
	// the answer must not change.
	came    []came
	sending bool
	// bytes is the request that is being executed, buf has the bytes that were read from a memory
	// server, made the bytes that are written there, and out the bytes of the answer.
	bytes, buf, made, out []byte
	reply                 answer // the answer to the request that is being executed
	// doubt is the place of a key whose last WRITE was not acknowledged; see settle.
	doubt *place
}

type came struct{ recv, n int }

// recvs is the number of posted receives. Two are enough: a client sends the next request when it
// has the answer, and the handler has posted the receive of the previous request again by then.
const recvs = 2

// lookPause is the period at which an idle handler checks whether its connection has ended.
const lookPause = 50 * time.Millisecond

// settlePause is the time limit of one attempt of settle to reach the memory server.
const settlePause = time.Second

func (h *handler) requestLen() int { return requestHead + h.c.index.shape.Value }

// sendID is the ID of the work requests that send answers. No receive has it.
const sendID = 1 << 32

func (c *Coordinator) newHandler() (_ *handler, err error) {
	h := &handler{c: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.cq, err = c.cfg.Context.CreateCQ(len(h.wcs)); err != nil {
		return nil, err
	}
	n := h.requestLen()
	if h.mr, err = c.pd.RegMR(nil, recvs*n+answerHead+max(passive.SuperLen, c.index.shape.Value), verbs.LocalWrite); err != nil {
		return nil, err
	}
	if h.srq, err = c.pd.CreateSRQ(verbs.SRQInit{MaxWR: recvs, MaxSGE: 1}); err != nil {
		return nil, err
	}
	for i := range recvs {
		if err := h.post(i); err != nil {
			return nil, err
		}
	}
	h.qp, err = c.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: h.cq, RecvCQ: h.cq, SRQ: h.srq, MaxSendWR: 1, MaxSGE: 1})
	if err != nil {
		return nil, err
	}
	if h.conn, err = c.memory(); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *handler) post(i int) error {
	n := h.requestLen()
	return h.srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{h.mr.SGE(i*n, n)}})
}

func (h *handler) close() error {
	var errs []error
	if h.qp != nil {
		errs = append(errs, h.qp.Destroy())
	}
	if h.srq != nil {
		errs = append(errs, h.srq.Destroy())
	}
	if h.mr != nil {
		errs = append(errs, h.mr.Dereg())
	}
	if h.cq != nil {
		errs = append(errs, h.cq.Destroy())
	}
	if h.conn != nil {
		errs = append(errs, h.conn.Close())
	}
	return errors.Join(errs...)
}

// run serves the connection until it ends.
func (h *handler) run() {
	defer func() { _ = h.c.drop(h) }() // an object that cannot be destroyed is left behind
	for h.step() == nil {
	}
	h.settle()
}

// step waits for the next request, executes it and answers it.
func (h *handler) step() error {
	for len(h.came) == 0 {
		if err := h.poll(); err != nil {
			return err
		}
	}
	r := h.came[0]
	h.came = h.came[1:]
	h.bytes = append(h.bytes[:0], make([]byte, r.n)...)
	if err := h.mr.ReadAt(h.bytes, r.recv*h.requestLen()); err != nil {
		return err
	}
	if err := h.post(r.recv); err != nil {
		return err
	}
	var q query
	if err := q.parse(h.bytes); err != nil {
		return err
	}
	if h.c.cfg.Pace != nil {
		h.c.cfg.Pace()
	}
	before := h.conn.RTTs()
	h.reply = answer{seq: q.seq}
	h.execute(&q, h.c.rt.Now().Add(q.patience))
	h.reply.trips = h.conn.RTTs() - before
	if err := h.answer(&q); err != nil {
		return err
	}
	h.settle()
	return h.c.ended()
}

// poll waits for completions. It adds requests that have arrived to the list h.came, and clears
// h.sending when the send of an answer has ended.
func (h *handler) poll() error {
	n, err := h.cq.Poll(h.wcs[:])
	if err == nil && n == 0 {
		if err = h.cq.Wait(h.c.rt.Now().Add(lookPause)); errors.Is(err, verbs.ErrTimeout) {
			err = h.look()
		}
	}
	for i := range n {
		switch wc := &h.wcs[i]; {
		case wc.Status != verbs.Success:
			return verbs.ErrClosed
		case wc.ID == sendID:
			h.sending = false
		default:
			h.came = append(h.came, came{int(wc.ID), int(wc.ByteLen)})
		}
	}
	return err
}

// look returns an error if the connection has ended. A handler must look, because the receives of a
// shared queue do not complete when the connection ends.
func (h *handler) look() error {
	if a, err := h.qp.Query(); err != nil || a.State == verbs.StateError {
		return verbs.ErrClosed
	}
	return h.c.ended()
}

func (h *handler) answer(q *query) error {
	for h.sending {
		if err := h.poll(); err != nil {
			return err
		}
	}
	h.out = h.reply.appendTo(h.out[:0])
	off := recvs * h.requestLen()
	if err := h.mr.WriteAt(h.out, off); err != nil {
		return err
	}
	h.sending = true
	return h.qp.PostSend(verbs.SendWR{
		ID: sendID, Op: verbs.OpWriteImm, Flags: verbs.Signalled, Imm: q.seq,
		SGL: []verbs.SGE{h.mr.SGE(off, len(h.out))}, RemoteAddr: q.addr, RKey: q.rkey,
	})
}

func (h *handler) execute(q *query, deadline clock.Time) {
	switch q.op {
	case opHello:
		h.reply.value = central.Encode(h.c.super)
	case opGet:
		h.reply.status = h.get(q.key, deadline)
	case opPut, opInsert, opDelete, opEnd:
		h.reply.status = h.change(q, deadline)
	}
}

// get reads a value. It needs no lock: the copy that the index names is whole and has the version
// of the index, unless two changes came meanwhile. get must not answer with another version, even a
// whole one, because the change that has written that version may not have happened yet.
func (h *handler) get(key uint64, deadline clock.Time) status {
	s := &h.c.index.shape
	for ; ; h.reply.waits++ {
		p, known := h.c.index.look(key)
		if !known || !p.alive {
			return h.confirm(key, notFound, deadline)
		}
		h.buf = append(h.buf[:0], make([]byte, s.copyLen())...)
		if err := h.conn.Read(p.server, p.copyAt(s, p.now), h.buf, deadline); err != nil {
			return h.fate(err)
		}
		if v, whole := valueOf(h.buf, key); whole && uint64(tagOf(h.buf)) == p.version {
			h.reply.value = v
			return done
		}
		if h.c.rt.Now() >= deadline {
			return failed
		}
	}
}

// confirm returns s, an answer that comes from the index alone. First it reads from the key's
// server: if the coordinator was deposed, its index may be old, and the server refuses the READ.
func (h *handler) confirm(key uint64, s status, deadline clock.Time) status {
	server, _ := passive.PlaceOf(key, h.conn.Servers())
	var b [8]byte
	if err := h.conn.Read(server, atServing, b[:], deadline); err != nil {
		return h.fate(err)
	}
	return s
}

// fate returns the status of an operation that has changed nothing, after an error of a memory
// server.
func (h *handler) fate(err error) status {
	switch {
	case isDeposed(err):
		_ = h.c.end(errDeposed)
		return deposed
	case errors.Is(err, kv.ErrLost):
		return lost
	}
	return failed
}

// change executes a PUT, an INSERT or a DELETE. It writes the copy that the index does not name,
// and then makes the index name it.
func (h *handler) change(q *query, deadline clock.Time) status {
	x := h.c.index
	s, insert := &x.shape, q.op == opInsert
	if q.key+1 == 0 || len(q.value) > s.Value {
		return failed
	}
	p, waited, err := x.acquire(q.key, insert, deadline)
	if waited {
		h.reply.waits++
	}
	switch {
	case err != nil:
		return failed
	case p == nil && insert:
		return full
	case p == nil:
		return h.confirm(q.key, notFound, deadline)
	}
	out := h.write(q, p, deadline)
	if out != doubtful { // after doubtful, settle releases the key
		x.release(p)
	} else {
		h.doubt = p
	}
	return out
}

// write executes a PUT, an INSERT or a DELETE of a key that the request has acquired. p is the
// key's place in the index.
func (h *handler) write(q *query, p *place, deadline clock.Time) status {
	x := h.c.index
	s, insert := &x.shape, q.op == opInsert
	switch {
	case insert && p.alive:
		return h.confirm(q.key, exists, deadline)
	case !insert && !p.alive:
		return h.confirm(q.key, notFound, deadline)
	case h.c.rt.Now() >= deadline:
		return failed
	}
	if !p.claimed {
		var b [keyLen]byte
		binary.LittleEndian.PutUint64(b[:], q.key+1)
		x.change(func() { p.sent = true })
		if err := h.conn.Write(p.server, s.keyAt(s.entryOf(p.at)), b[:], deadline); err != nil {
			// the entry may have the key now; until it has a whole copy of a value, the key does
			// not exist
			return h.fate(err)
		}
	}
	version, other := p.used+1, 1-p.now
	x.change(func() { p.claimed, p.used = true, version })
	h.made = putCopy(h.made, tag(version), q.key, q.value, q.op == opDelete)
	if err := h.conn.Write(p.server, p.copyAt(s, other), h.made, deadline); err != nil {
		if isDeposed(err) {
			_ = h.c.end(errDeposed)
		}
		return doubtful
	}
	x.change(func() { p.now, p.version, p.alive = other, version, q.op != opDelete })
	return done
}

// settle follows a WRITE that was not acknowledged. It makes the memory server end the connection
// of that WRITE. After that the WRITE cannot arrive any more, and the next change of the key may
// write the same copy of its value. Until then the key stays acquired, so no other change begins.
func (h *handler) settle() {
	p := h.doubt
	if p == nil {
		return
	}
	h.doubt = nil
	for h.c.ended() == nil {
		var b [8]byte
		err := h.conn.Read(p.server, atServing, b[:], h.c.rt.Now().Add(settlePause))
		switch {
		case isDeposed(err):
			_ = h.c.end(errDeposed)
		case err == nil, errors.Is(err, kv.ErrLost):
			h.c.index.release(p)
			return
		}
	}
}
