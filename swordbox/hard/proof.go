package hard

import "github.com/rdmalab/rdmalab/softrnic/wire"

// A request moves to a shared connection only if the server that the client is connected to is the one that the switch is
// connected to: the machine behind the address may have started anew in between, with the same queue pair numbers, keys and
// addresses, and to a client that was silent meanwhile its connection looks as it was. Without a switch that queue pair is
// dead; moved, its next atomic would be executed on memory that the client knows nothing of.
//
// No number proves anything here, for all of them may repeat. What proves it is that the client's own connection works: a
// request that is sent on it for the first time after the newest shared connection was attached, and then acknowledged, came
// to a queue pair that is older than its acknowledgement and lives in the same life of the server as the shared connection,
// or in a later one, in which that connection is dead. So each lane has to show it once for each shared connection that its
// server gets, its first requests included; until then requests stay on the own connection, as without a switch. This is
// also the proof that both directions of a connection which was learnt from packets are paired rightly: the row's number
// came back from the row's server.

// proof is how far a lane has shown that its connection and the server's shared ones belong to the same life of the server.
type proof struct {
	life   uint32 // of the server that is proven
	asked  uint32 // for which mark counts; 0: none
	mark   wire.PSN
	breaks uint32 // of the server, at the last proof
}

// isProven reports whether the lane's requests may move, as far as the server's life is concerned.
func (l *lane) isProven() bool { return l.proof.life == l.s.life }

// isSuspect reports whether the server may have begun a new life since the lane was proven last: a shared connection has
// failed. What seems to come again may then be the first of a new connection that has the numbers of this one.
func (l *lane) isSuspect() bool { return l.proof.breaks != l.s.breaks }

// sends is called with the number on the own connection of a request that is sent there for the first time.
func (l *lane) sends(own wire.PSN) {
	if l.proof.life != l.s.life && l.proof.asked != l.s.life {
		l.proof.asked, l.proof.mark = l.s.life, own
	}
}

// proves is called when everything before end on the own connection has been acknowledged.
func (l *lane) proves(end wire.PSN) {
	if p := &l.proof; p.life != l.s.life && p.asked == l.s.life && wire.Diff(end, p.mark) > 0 {
		p.life, p.breaks = l.s.life, l.s.breaks
		l.m.stats.Proofs++
	}
}
