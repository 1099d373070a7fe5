package perf

import (
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// idleLimit is how long the server of a mode waits for a message before it takes its client for gone.
const idleLimit = 2 * time.Minute

// sendID marks the completions of echoes.
const sendID = 1 << 32

// serveMode is the thread of a connection with a mode: it posts receives and takes messages until the queue pair
// goes to error or the client is silent for idleLimit. It destroys the connection.
func serveMode(rt verbs.Runtime, c *conn) {
	m := &mode{conn: c, pat: Pattern{c.hello.Seed}}
	_ = m.serve(rt)    // the client sees why by itself: completions and report end
	_ = c.qp.ToError() // a client that still sends is told by its retry counter
	_ = c.destroy()
}

type mode struct {
	*conn
	pat   Pattern
	count uint64 // messages received
	bad   uint64
	bytes uint64
	wcs   [64]verbs.WC
	recvs []verbs.RecvWR
	sges  []verbs.SGE
}

func (m *mode) serve(rt verbs.Runtime) error {
	n := m.hello.Recvs
	m.sges = make([]verbs.SGE, n)
	for i := range n {
		m.sges[i] = m.data.SGE(i*m.hello.Size, m.hello.Size)
		m.recvs = append(m.recvs, m.recv(i))
	}
	if err := m.qp.PostRecv(m.recvs...); err != nil {
		return err
	}
	if err := m.report.Store64(reportReady, 1); err != nil {
		return err
	}
	for {
		n, err := m.cq.Poll(m.wcs[:])
		if err != nil {
			return err
		}
		if n == 0 {
			if err := m.cq.Wait(rt.Now().Add(idleLimit)); err != nil {
				return err
			}
			continue
		}
		if err := m.take(m.wcs[:n]); err != nil {
			return err
		}
	}
}

func (m *mode) recv(slot int) verbs.RecvWR {
	return verbs.RecvWR{ID: uint64(slot), SGL: m.sges[slot : slot+1]}
}

// errFlushed ends the thread of a connection.
var errFlushed = errors.New("queue pair in error")

// take handles completions and posts their receives again.
func (m *mode) take(wcs []verbs.WC) error {
	m.recvs = m.recvs[:0]
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
			if m.hello.Mode == modeEcho {
				// The slot is received into again when its echo has left.
				sge := []verbs.SGE{m.sges[slot]}
				sge[0].Length = wc.ByteLen
				if err := m.qp.PostSend(verbs.SendWR{ID: wc.ID | sendID, Op: verbs.OpSend, Flags: verbs.Signalled, SGL: sge}); err != nil {
					return err
				}
				continue
			}
		}
		m.recvs = append(m.recvs, m.recv(slot))
	}
	if err := m.qp.PostRecv(m.recvs...); err != nil {
		return err
	}
	return m.report.Store64(reportCount, m.count)
}

// judge compares the next message with what it must be.
func (m *mode) judge(slot, n int) error {
	msg := m.count
	m.count++
	m.bytes += uint64(n)
	return m.judgeAs(msg, m.buf[slot*m.hello.Size:slot*m.hello.Size+n])
}

// judgeAs compares b with message msg.
func (m *mode) judgeAs(msg uint64, b []byte) error {
	if !m.hello.Verify {
		return nil
	}
	off := m.pat.Check(b, msg)
	if off < 0 && len(b) != m.hello.Size {
		off = len(b)
	}
	err := m.report.Store64(reportBytes, m.bytes)
	if off < 0 {
		return err
	}
	if m.bad == 0 {
		err = errors.Join(err, m.report.Store64(reportBadMsg, msg), m.report.Store64(reportBadByte, uint64(off)))
	}
	m.bad++
	return errors.Join(err, m.report.Store64(reportBad, m.bad))
}
