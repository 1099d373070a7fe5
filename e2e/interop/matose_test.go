package interop_test

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Our ends of ucmatose and udaddy, librdmacm's examples of connections and of datagrams. The server
// of ucmatose sends first and disconnects first; that of udaddy answers as many messages as it
// received.

// The ports of these programs.
const (
	matosePort = "7471"
	udaddyPort = "7174"
)

// patient are the parameters of a connection to the guest, which is slow.
var patient = rdmacm.Params{Timeout: patientTimeout, RdAtomic: 1}

// receives waits for Count messages of Size bytes.
func (s *speaker) receives(m *mouth) error {
	for i := range s.Count {
		wc, err := m.next(m.recvs)
		if err == nil && int(wc.ByteLen) != s.Size {
			err = fmt.Errorf("%d bytes, want %d", wc.ByteLen, s.Size)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	s.say("received %d", s.Count)
	return nil
}

func (s *speaker) transmits(m *mouth) error {
	for i := range s.Count {
		if err := m.send(s.Size); err != nil {
			return fmt.Errorf("sending %d: %w", i, err)
		}
	}
	s.say("sent %d", s.Count)
	return nil
}

func (s *speaker) matoseServer() error {
	m, err := s.newMouth(s.Size, s.Count)
	if err != nil {
		return err
	}
	l, err := s.cm.Listen(matosePort)
	if err != nil {
		return err
	}
	s.say("listening")
	req, err := l.Accept(s.in(speakLimit))
	if err != nil {
		return err
	}
	return errors.Join(
		req.Accept(m.qp, patient, nil, s.in(speakLimit)), s.transmits(m), s.receives(m),
		s.cm.Disconnect(m.qp, s.in(speakLimit)), m.close(), l.Close(),
	)
}

func (s *speaker) matoseClient() error {
	m, err := s.newMouth(s.Size, s.Count)
	if err != nil {
		return err
	}
	if _, err := s.cm.Dial(m.qp, s.To, matosePort, patient, nil, s.in(speakLimit)); err != nil {
		return err
	}
	return errors.Join(s.receives(m), s.transmits(m), s.cm.AwaitDisconnect(m.qp, s.in(speakLimit)), m.close())
}

// udpQKey is the Q_Key of librdmacm's UDP port space.
const udpQKey = 0x01234567

// newDatagramMouth makes a queue pair for datagrams with Count receives.
func (s *speaker) newDatagramMouth() (*mouth, error) {
	m, err := s.newMouth(verbs.GRHLen+s.Size, s.Count)
	if err != nil {
		return nil, err
	}
	if err := m.qp.Destroy(); err != nil {
		return nil, err
	}
	m.qp, err = m.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: m.sends, RecvCQ: m.recvs, SRQ: m.srq})
	if err != nil {
		return nil, err
	}
	return m, errors.Join(m.qp.ToInit(verbs.ToInit{QKey: udpQKey}), m.qp.ToRTR(verbs.ToRTR{}), m.qp.ToRTS(verbs.ToRTS{}))
}

// datagrams sends Count datagrams that carry the number of their queue pair.
func (s *speaker) datagrams(m *mouth, to rdmacm.DatagramPeer) error {
	ah, err := m.pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(to.Peer), SourceGID: s.sourceGID(to)})
	if err != nil {
		return err
	}
	for range s.Count {
		err := m.qp.PostSend(verbs.SendWR{
			Op: verbs.OpSendImm, Imm: uint32(m.qp.QPN()), Flags: verbs.Signalled, SGL: []verbs.SGE{m.mr.SGE(0, s.Size)},
			AH: ah, RemoteQPN: to.QPN, RemoteQKey: to.QKey,
		})
		if err != nil {
			return err
		}
		if _, err := m.next(m.sends); err != nil {
			return err
		}
	}
	s.say("sent %d", s.Count)
	return ah.Destroy()
}

// sourceGID returns the index of our address of the peer's family.
func (s *speaker) sourceGID(to rdmacm.DatagramPeer) int {
	for i, g := range s.ctx.Device().GIDs {
		if g.Addr().Is4() == to.Peer.Is4() {
			return i
		}
	}
	return 0
}

// datagramsFrom waits for Count datagrams of one peer and returns the address and queue pair that
// sent them.
func (s *speaker) datagramsFrom(m *mouth) (from rdmacm.DatagramPeer, err error) {
	for i := range s.Count {
		wc, err := m.next(m.recvs)
		if err == nil && (int(wc.ByteLen) != verbs.GRHLen+s.Size || wc.Flags&verbs.WithImm == 0 || uint32(wc.SrcQPN) != wc.Imm) {
			err = fmt.Errorf("%+v", wc)
		}
		if err != nil {
			return from, fmt.Errorf("datagram %d: %w", i, err)
		}
		var b [verbs.GRHLen]byte
		if err := m.mr.ReadAt(b[:], (int(wc.ID)+1)*m.slot); err != nil {
			return from, err
		}
		h, err := verbs.ParseGRH(b[:])
		if err != nil {
			return from, err
		}
		from = rdmacm.DatagramPeer{Peer: h.Source.Addr(), QPN: wc.SrcQPN, QKey: udpQKey}
	}
	s.say("received %d", s.Count)
	return from, nil
}

func (s *speaker) udaddyServer() error {
	m, err := s.newDatagramMouth()
	if err != nil {
		return err
	}
	l, err := s.cm.ListenDatagrams(udaddyPort)
	if err != nil {
		return err
	}
	s.say("listening")
	req, err := l.Accept(s.in(speakLimit))
	if err != nil {
		return err
	}
	if err := req.Answer(m.qp, nil); err != nil {
		return err
	}
	from, err := s.datagramsFrom(m)
	if err == nil && from.Peer != req.Peer() {
		err = fmt.Errorf("datagrams of %v, asked by %v", from.Peer, req.Peer())
	}
	if err != nil {
		return err
	}
	return errors.Join(s.datagrams(m, from), m.close(), l.Close())
}

func (s *speaker) udaddyClient() error {
	m, err := s.newDatagramMouth()
	if err != nil {
		return err
	}
	to, err := s.cm.ResolveDatagrams(s.To, udaddyPort, nil, s.in(speakLimit))
	if err != nil {
		return err
	}
	if err := s.datagrams(m, to); err != nil {
		return err
	}
	from, err := s.datagramsFrom(m)
	if err == nil && (from.Peer != to.Peer || from.QPN != to.QPN) {
		err = fmt.Errorf("answers of %+v, sent to %+v", from, to)
	}
	return errors.Join(err, m.close())
}
