package meta

import (
	"github.com/rdmalab/rdmalab/clover/rpc"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// newFront makes the part of the metadata server that receives the calls of clients and sends the
// answers (store/rpc).
func (c *Config) newFront() (*calls.Server, error) {
	return calls.New(calls.Config{
		Context: c.Context, Params: c.Params, Threads: max(1, c.Threads), Slots: rpc.AnswerSlots,
		MaxRequest: rpc.MaxRequest, MaxAnswer: rpc.MaxAnswer, Requests: recvs, Conns: maxConns,
	})
}

func (s *Server) answer(c *calls.Conn, r *rpc.Request, a *rpc.Answer) {
	s.stamp(a)
	s.send(c, r, a)
}

// stamp sets the fields Epoch, Clock and Scarce, which are the same for all clients.
func (s *Server) stamp(a *rpc.Answer) {
	a.Clock = s.pool.clock
	a.Epoch, a.Scarce = s.pool.epoch, s.mem.rt.Now() < s.pool.segments.scarceUntil
}

func (s *Server) send(c *calls.Conn, r *rpc.Request, a *rpc.Answer) {
	s.front.Answer(c, calls.Buffer{Addr: r.BufAddr, RKey: r.BufRKey}, int(a.Seq&1), a.Seq, a.AppendTo(nil))
}
