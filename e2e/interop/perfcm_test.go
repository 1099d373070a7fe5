package interop_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// perfPort is where perftest listens, also over RDMA-CM.
const perfPort = "18515"

// destLen is the length of perftest's record of a queue pair when it goes over RDMA-CM: a structure
// of C in network order.
const destLen = 56

// Offsets of its fields.
const (
	destOutReads = 4
	destQPN      = 8
	destRKey     = 16
	destVAddr    = 24
)

// perfServer is our server for perftest -R: a first connection carries as SENDs what perftest
// otherwise exchanges over TCP, a second one carries the traffic. The server answers each message
// with one of the same kind, until the client disconnects.
func (s *speaker) perfServer() error {
	talk, err := s.newMouth(64, 16)
	if err != nil {
		return err
	}
	data, err := s.newMouth(s.Size, s.Count)
	if err != nil {
		return err
	}
	l, err := s.cm.Listen(perfPort)
	if err != nil {
		return err
	}
	s.say("listening")
	params := rdmacm.Params{Timeout: patientTimeout}
	req, err := l.Accept(s.in(speakLimit))
	if err != nil {
		return err
	}
	if err := req.Accept(talk.qp, params, nil, s.in(speakLimit)); err != nil {
		return err
	}
	done := make(chan error, 1)
	s.rt.Go("talk", func() { done <- s.converse(talk, data) })
	if req, err = l.Accept(s.in(speakLimit)); err != nil {
		return errors.Join(err, <-done)
	}
	err = req.Accept(data.qp, params, nil, s.in(speakLimit))
	err = errors.Join(err, <-done, s.cm.AwaitDisconnect(data.qp, s.in(speakLimit)), s.cm.AwaitDisconnect(talk.qp, s.in(speakLimit)))
	if err != nil {
		return err
	}
	n, err := s.arrived(data)
	c := s.dev.Counters()
	s.say("%d messages, %d WRITEs, %d READs", n, c.RxWriteRequests, c.RxReadRequests)
	return errors.Join(err, data.close(), talk.close(), l.Close())
}

// converse answers a message of the client: its record with ours, any other message with the same
// bytes.
func (s *speaker) converse(talk, data *mouth) error {
	own := make([]byte, destLen)
	binary.BigEndian.PutUint32(own[destOutReads:], 1)
	binary.BigEndian.PutUint32(own[destQPN:], uint32(data.qp.QPN()))
	binary.BigEndian.PutUint32(own[destRKey:], data.mr.RKey())
	binary.BigEndian.PutUint64(own[destVAddr:], data.mr.Addr())
	for {
		wc, over, err := talk.heard()
		if err != nil || over {
			return err
		}
		said := make([]byte, wc.ByteLen)
		if err := errors.Join(talk.mr.ReadAt(said, (int(wc.ID)+1)*talk.slot), talk.recv(int(wc.ID))); err != nil {
			return err
		}
		if len(said) == destLen {
			said = own
		}
		if err := errors.Join(talk.mr.WriteAt(said, 0), talk.send(len(said))); errors.Is(err, errEnded) {
			return nil // the client has disconnected after its last message
		} else if err != nil {
			return fmt.Errorf("answering %d bytes: %w", len(said), err)
		}
	}
}

// arrived returns how many messages were received.
func (s *speaker) arrived(m *mouth) (n int, err error) {
	var wc [16]verbs.WC
	for {
		k, err := m.recvs.Poll(wc[:])
		if err != nil || k == 0 {
			return n, err
		}
		for _, w := range wc[:k] {
			if w.Status == verbs.Success {
				n++
			}
		}
	}
}

// heard waits for the next message or the end of the connection, which does not flush a shared
// receive queue.
func (m *mouth) heard() (wc verbs.WC, over bool, err error) {
	for {
		attr, err := m.qp.Query()
		if err != nil {
			return wc, false, err
		}
		switch err := m.recvs.Wait(m.s.in(100 * time.Millisecond)); {
		case err == nil:
			wc, err := m.next(m.recvs)
			return wc, false, err
		case !errors.Is(err, verbs.ErrTimeout):
			return wc, false, err
		case attr.State == verbs.StateError:
			return wc, true, nil
		}
	}
}
