package perf

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// SEND tests over UC or UD, over several queue pairs, or with a shared receive queue do not send
// over the connection to the service. They use additional queue pairs, the lanes. Client and server
// exchange the attributes of the lanes in words behind the server's report. The server writes its
// table; the client writes its own table and then the word laneGo. Then the server connects its
// lanes, posts receives and sets reportReady. Each message has its number as immediate data.

// Values of Config.Conn.
const (
	ConnRC = "rc"
	ConnUC = "uc"
	ConnUD = "ud"
)

// MaxQPs is the largest value of Config.QPs.
const MaxQPs = 64

// lanes says which lanes, the additional queue pairs of a SEND test, a client uses. As text, "uc4s"
// means four lanes of UC with a shared receive queue.
type lanes struct {
	kind   string // transport service, as in Config.Conn
	n      int
	shared bool // the server's lanes have a shared receive queue
}

var laneTypes = map[string]verbs.QPType{ConnRC: verbs.RC, ConnUC: verbs.UC, ConnUD: verbs.UD}

func (l lanes) String() string {
	s := l.kind + strconv.Itoa(l.n)
	if l.shared {
		s += "s"
	}
	return s
}

// laneCodes are the transport services of lanes. The code in a request is the index in this list; 0
// means no lanes.
var laneCodes = []string{"", ConnRC, ConnUC, ConnUD}

// code returns the number that stands for the transport service in a request, an index in
// laneCodes.
func (l lanes) code() byte { return byte(slices.Index(laneCodes, l.kind)) }

// lanesOf decodes the lanes in a request. ok is false if the code or the number is not allowed.
func lanesOf(code, n, shared byte) (l lanes, ok bool) {
	if code == 0 || int(code) >= len(laneCodes) || n < 1 || n > MaxQPs {
		return lanes{}, false
	}
	return lanes{laneCodes[code], int(n), shared != 0}, true
}

// lanes returns the lanes that a run needs. ok is false if the run needs none, because the
// connection to the service carries the messages.
func (c *Config) lanes() (l lanes, ok bool) {
	return lanes{c.Conn, c.QPs, c.SRQ}, c.Conn != ConnRC || c.QPs > 1 || c.SRQ
}

// checkLanes validates the fields of c that concern lanes.
func (c *Config) checkLanes() error {
	switch {
	case c.Conn != "" && !slices.Contains([]string{ConnRC, ConnUC, ConnUD}, c.Conn):
		return fmt.Errorf("connection %.40q: %swant rc, uc or ud", c.Conn, nearest.Meant(c.Conn, []string{ConnRC, ConnUC, ConnUD}, connsMeant))
	case c.QPs < 0 || c.QPs > MaxQPs:
		return fmt.Errorf("%d queue pairs: want 1 to %d", c.QPs, MaxQPs)
	case c.Test != SendBW && c.Test != SendLat && (c.Conn != "" && c.Conn != ConnRC || c.QPs > 1 || c.SRQ):
		return fmt.Errorf("other services, several queue pairs and shared receives are for %s and %s", SendBW, SendLat)
	case c.Test == SendLat && c.QPs > 1:
		return fmt.Errorf("%s has one message at a time: leave the queue pairs at 1", SendLat)
	}
	return nil
}

// laneEnd describes one end of a lane for the other end: queue pair number, first PSN and path MTU.
// It is packed into a word.
type laneEnd struct {
	qpn wire.QPN
	psn wire.PSN
	mtu verbs.MTU
}

func (e laneEnd) pack() uint64 {
	return uint64(e.mtu)<<48 | uint64(e.psn)<<24 | uint64(e.qpn)
}

func unpackLane(w uint64) laneEnd {
	const mask = 1<<24 - 1
	return laneEnd{wire.QPN(w & mask), wire.PSN(w >> 24 & mask), verbs.MTU(w >> 48)}
}

// Offsets of words behind the words of the server's report, in the memory of this report. laneTable
// returns the offset of entry i of the server's table. laneAnswer returns the offset of entry i of
// the client's table. laneGo returns the offset of the word that the client sets when its table is
// complete. laneBytes returns the length of all these words in bytes. n is the number of lanes.
func laneTable(i int) int     { return reportSize + 8*i }
func laneAnswer(n, i int) int { return reportSize + 8*(n+i) }
func laneGo(n int) int        { return reportSize + 16*n }
func laneBytes(n int) int     { return 16*n + 8 }

// laneQKey is the Q_Key of all lanes of UD. It is constant, because client and server do not
// exchange Q_Keys.
const laneQKey = 0x6c616e65

// room returns how many bytes a receive of a lane has in front of the message: the GRH of a
// datagram.
func (l lanes) room() int {
	if l.kind == ConnUD {
		return verbs.GRHLen
	}
	return 0
}

// start moves a lane from RESET to RTS. A lane of RC or UC is then connected to the peer's queue
// pair `remote` at the address gid. own is this side's end of the lane.
func (l lanes) start(ctx verbs.Context, qp verbs.QP, own rdmacm.Endpoint, remote laneEnd, gid verbs.GID, p rdmacm.Params) error {
	if l.kind != ConnUD {
		return rdmacm.BringUp(ctx, qp, p, own, rdmacm.Endpoint{QPN: remote.qpn, PSN: remote.psn, GID: gid, MTU: remote.mtu, RdAtomic: own.RdAtomic})
	}
	err := qp.ToInit(verbs.ToInit{QKey: laneQKey})
	if err == nil {
		err = qp.ToRTR(verbs.ToRTR{})
	}
	if err == nil {
		err = qp.ToRTS(verbs.ToRTS{SendPSN: own.PSN})
	}
	return err
}
