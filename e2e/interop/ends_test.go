package interop_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Our ends of connections whose other end dies, and of many short connections.

// anyPort is the port of our ends that are not the counterpart of a tool with a port of its own.
const anyPort = "7777"

// outcome describes an error of the connection manager in words that do not vary between runs.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, verbs.ErrTimeout):
		return "timed out"
	case errors.Is(err, rdmacm.ErrRejected):
		return "rejected"
	case errors.Is(err, verbs.ErrState):
		return "had ended"
	case errors.Is(err, verbs.ErrUnreachable):
		return "was ended"
	}
	return err.Error()
}

// ended describes how a connection ended, and the state of its queue pair.
func (s *speaker) ended(what string, err error, m *mouth) error {
	attr, qerr := m.qp.Query()
	s.say("%s: %s, %v", what, outcome(err), attr.State)
	return qerr
}

// request takes a request and does not answer it.
func (s *speaker) request() (rdmacm.Listener, rdmacm.Request, error) {
	l, err := s.cm.Listen(s.Port)
	if err != nil {
		return nil, nil, err
	}
	s.say("listening")
	req, err := l.Accept(s.in(speakLimit))
	if err == nil {
		s.say("asked")
	}
	return l, req, err
}

// hold takes a request and accepts it when the spec says so, after the initiator has died.
func (s *speaker) hold() error {
	m, err := s.newMouth(64, 4)
	if err != nil {
		return err
	}
	l, req, err := s.request()
	if err != nil {
		return err
	}
	<-s.words
	err = s.ended("accept", req.Accept(m.qp, patient, nil, s.in(20*time.Second)), m)
	return errors.Join(err, m.close(), l.Close())
}

// pour sends until a send fails, and returns the error. WRITEs of no bytes need no memory of the
// peer.
func (m *mouth) pour() error {
	for n := 0; ; n++ {
		if n == 10 {
			m.s.say("pouring")
		}
		if err := m.qp.PostSend(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled}); err != nil {
			return err
		}
		if _, err := m.next(m.sends); err != nil {
			return err
		}
	}
}

// flood connects and sends until the peer dies.
func (s *speaker) flood() error {
	m, err := s.newMouth(64, 4)
	if err != nil {
		return err
	}
	if _, err := s.cm.Dial(m.qp, s.To, s.Port, patient, nil, s.in(speakLimit)); err != nil {
		return err
	}
	s.say("transfer: %v", m.pour())
	err = s.ended("disconnect", s.cm.Disconnect(m.qp, s.in(speakLimit)), m)
	return errors.Join(err, m.close())
}

// dial sends a connection request and describes the outcome.
func (s *speaker) dial() error {
	m, err := s.newMouth(64, 4)
	if err != nil {
		return err
	}
	s.say("dialing")
	_, err = s.cm.Dial(m.qp, s.To, s.Port, patient, nil, s.in(20*time.Second))
	return errors.Join(s.ended("dial", err, m), m.close())
}

// survivor has a request that waits for its answer and a connection in use when the machine at the
// other end dies.
func (s *speaker) survivor() error {
	waiting, err := s.newMouth(64, 4)
	if err != nil {
		return err
	}
	busy, err := s.newMouth(64, 4)
	if err != nil {
		return err
	}
	l, req, err := s.request()
	if err != nil {
		return err
	}
	quick := rdmacm.Params{Timeout: 15, RdAtomic: 1} // gives up after about a second
	if _, err := s.cm.Dial(busy.qp, s.To, rpingPort, quick, nil, s.in(speakLimit)); err != nil {
		return err
	}
	s.say("transfer: %v", busy.pour())
	err = s.ended("disconnect", s.cm.Disconnect(busy.qp, s.in(2*speakLimit)), busy)
	err = errors.Join(err, s.ended("accept", req.Accept(waiting.qp, quick, nil, s.in(10*time.Second)), waiting), waiting.qp.ToReset())
	_, derr := s.cm.Dial(waiting.qp, s.To, rpingPort, quick, nil, s.in(10*time.Second))
	return errors.Join(err, s.ended("dial", derr, waiting), busy.close(), waiting.close(), l.Close())
}

// cycles accepts Count connections, each of which the other end ends, and runs until the spec stops
// it.
func (s *speaker) cycles() error {
	l, err := s.cm.Listen(s.Port)
	if err != nil {
		return err
	}
	s.say("listening")
	ended := make(chan error, s.Count)
	for range s.Count {
		req, err := l.Accept(s.in(speakLimit))
		if err != nil {
			return err
		}
		s.rt.Go("connection", func() {
			m, err := s.newMouth(64, 4)
			if err == nil {
				err = req.Accept(m.qp, patient, nil, s.in(speakLimit))
				if errors.Is(err, verbs.ErrUnreachable) {
					err = nil // the peer had disconnected before this call
				}
				err = errors.Join(err, s.cm.AwaitDisconnect(m.qp, s.in(speakLimit)), m.close())
			}
			ended <- err
		})
	}
	for range s.Count {
		err = errors.Join(err, <-ended)
	}
	if err == nil {
		s.say("%d connections", s.Count)
		<-s.words // the other end may still wait for the answer to its last DREQ, which is answered until then
	}
	return errors.Join(err, l.Close())
}

// dialCycles makes and ends Count connections.
func (s *speaker) dialCycles() error {
	for i := range s.Count {
		m, err := s.newMouth(64, 4)
		if err != nil {
			return err
		}
		if _, err := s.cm.Dial(m.qp, s.To, s.Port, patient, nil, s.in(speakLimit)); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		if err := errors.Join(s.cm.Disconnect(m.qp, s.in(speakLimit)), m.close()); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	s.say("%d connections", s.Count)
	return nil
}
