package perf

import (
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// idleLimit is how long a server waits for a message before it ends the connection.
const idleLimit = 2 * time.Minute

// sendID is a bit in the ID of a work request. It is set for sends of echoes, so that their
// completions differ from those of receives.
const sendID = 1 << 32

// sink is the server's part in a connection without lanes. It posts receives and takes messages,
// until the queue pair is in ERROR or the client has sent nothing for idleLimit.
type sink struct {
	w     *work
	pat   Pattern
	count uint64 // messages received
	bad   uint64 // messages received with wrong bytes
	bytes uint64 // bytes received
	wcs   [64]verbs.WC
	again []verbs.RecvWR // receives that must be posted again
	sges  []verbs.SGE
}

func (m *sink) serve() error {
	n := m.w.recvs
	m.sges = make([]verbs.SGE, n)
	for i := range n {
		m.sges[i] = m.w.data.SGE(i*m.w.size, m.w.size)
		m.again = append(m.again, m.recv(i))
	}
	if err := m.w.QP.PostRecv(m.again...); err != nil {
		return err
	}
	if err := m.w.report.Store64(reportReady, 1); err != nil {
		return err
	}
	return m.loop(m.take)
}

// loop passes completions to take until take fails, or the client has sent nothing for idleLimit.
func (m *sink) loop(take func(wcs []verbs.WC) error) error {
	for {
		n, err := m.w.CQ.Poll(m.wcs[:])
		switch {
		case err != nil:
		case n == 0:
			err = m.w.CQ.Wait(m.w.rt.Now().Add(idleLimit))
		default:
			err = take(m.wcs[:n])
		}
		if err != nil {
			return err
		}
	}
}

func (m *sink) recv(slot int) verbs.RecvWR {
	return verbs.RecvWR{ID: uint64(slot), SGL: m.sges[slot : slot+1]}
}

// errFlushed ends the thread that serves a connection: a completion has failed, because the queue
// pair is in ERROR, or the client has not written the table of its lanes.
var errFlushed = errors.New("queue pair in error")

// take handles completions, and posts the receives of the messages again.
func (m *sink) take(wcs []verbs.WC) error {
	m.again = m.again[:0]
	for i := range wcs {
		wc := &wcs[i]
		if wc.Status != verbs.Success {
			return errFlushed
		}
		slot := int(wc.ID &^ sendID)
		if wc.ID&sendID == 0 {
			if err := m.judge(slot, int(wc.ByteLen)); err != nil {
				return err
			}
			if m.w.mode == modeEcho {
				// The receive of this slot is posted again when its echo has been sent.
				sge := []verbs.SGE{m.sges[slot]}
				sge[0].Length = wc.ByteLen
				if err := m.w.QP.PostSend(verbs.SendWR{ID: wc.ID | sendID, Op: verbs.OpSend, Flags: verbs.Signalled, SGL: sge}); err != nil {
					return err
				}
				continue
			}
		}
		m.again = append(m.again, m.recv(slot))
	}
	if err := m.w.QP.PostRecv(m.again...); err != nil {
		return err
	}
	return m.w.report.Store64(reportCount, m.count)
}

// judge compares the message in a slot, which has n bytes, with the message that is expected next.
func (m *sink) judge(slot, n int) error {
	msg := m.count
	m.count++
	m.bytes += uint64(n)
	return m.judgeAs(msg, m.w.buf[slot*m.w.size:slot*m.w.size+n])
}

// judgeAs compares b with message msg.
func (m *sink) judgeAs(msg uint64, b []byte) error {
	if !m.w.verify {
		return nil
	}
	off := m.pat.Check(b, msg)
	if off < 0 && len(b) != m.w.size {
		off = len(b)
	}
	err := m.w.report.Store64(reportBytes, m.bytes)
	if off < 0 {
		return err
	}
	if m.bad == 0 {
		err = errors.Join(err, m.w.report.Store64(reportBadMsg, msg), m.w.report.Store64(reportBadByte, uint64(off)))
	}
	m.bad++
	return errors.Join(err, m.w.report.Store64(reportBad, m.bad))
}
