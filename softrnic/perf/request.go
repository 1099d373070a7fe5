package perf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// request describes the server's part in a SEND test. It is sent as the data for a Worker in a
// connect request of package memservice. Each field has its length in bytes behind its name:
//
//	mode 1 | verify 1 | size 4 | receives 2 | seed 8 | transport service of lanes 1 | lanes 1 | shared 1 | RNR timer 1
//
// The answer is the region of the server's report.
type request struct {
	// mode is what the server does with the messages: modeSink or modeEcho. 0 means that only the
	// server's NIC takes part.
	mode mode
	// verify makes the server compare each message with the pattern of seed.
	verify bool
	// size is the size of a message in bytes. recvs is the number of receives for each queue pair.
	size, recvs int
	seed        uint64
	// lanes are the queue pairs that carry the messages (see lanes.go). The zero value means that the
	// connection itself carries them.
	lanes lanes
	// rnrTimer is the code of the RNR timer of the server's queue pairs; 0 means the default of rdmacm.
	rnrTimer uint8
}

// shortTimer is the code of an RNR timer of 0.01 ms. The server posts a receive again as soon as it
// has taken its message: a client that waited the default of 0.64 ms would mostly be idle after the
// first RNR NAK. Only a client that tries again without end asks for it. For others, the timer and
// the retries together are the server's time.
const shortTimer = 1

// timer returns the code of the RNR timer that the server is to use.
func (c *Path) timer() uint8 {
	if n := c.RNRRetry; n == 0 || n == endless {
		return shortTimer
	}
	return 0
}

// endless is the number of RNR retries that means no end.
const endless = 7

// Params returns the parameters of the server's queue pairs.
func (w *request) Params() rdmacm.Params { return rdmacm.Params{MinRNRTimer: w.rnrTimer} }

// mode is what the server does with messages.
type mode uint8

const (
	// modeSink: the server receives and verifies messages.
	modeSink mode = iota + 1
	// modeEcho: the server also sends each message back.
	modeEcho
)

// String returns the name of the mode. The name of the server's thread ends with it.
func (m mode) String() string {
	if m == modeEcho {
		return "echo"
	}
	return "sink"
}

const requestLen = 20

// slot returns the length of a receive in bytes.
func (w *request) slot() int { return w.size + w.lanes.room() }

// queues returns the number of queue pairs that receive messages.
func (w *request) queues() int { return max(1, w.lanes.n) }

// encode returns the encoded request; nil if the server takes no part.
func (w *request) encode() []byte {
	if w.mode == 0 {
		return nil
	}
	flag := map[bool]byte{true: 1}
	b := []byte{byte(w.mode), flag[w.verify]}
	b = binary.BigEndian.AppendUint32(b, uint32(w.size))
	b = binary.BigEndian.AppendUint16(b, uint16(w.recvs))
	b = binary.BigEndian.AppendUint64(b, w.seed)
	return append(b, w.lanes.code(), byte(w.lanes.n), flag[w.lanes.shared], w.rnrTimer)
}

// parseRequest decodes a request and checks its limits.
func parseRequest(b []byte) (request, error) {
	if len(b) != requestLen {
		return request{}, fmt.Errorf("a request to the benchmark service has %d bytes of data: want %d", len(b), requestLen)
	}
	w := request{
		mode: mode(b[0]), verify: b[1] != 0, size: int(binary.BigEndian.Uint32(b[2:])), recvs: int(binary.BigEndian.Uint16(b[6:])),
		seed: binary.BigEndian.Uint64(b[8:]), rnrTimer: b[19],
	}
	if w.mode != modeSink && w.mode != modeEcho {
		return request{}, fmt.Errorf("mode %d: want sink or echo", b[0])
	}
	if b[16] != 0 || b[17] != 0 {
		var known bool
		if w.lanes, known = lanesOf(b[16], b[17], b[18]); !known {
			return request{}, fmt.Errorf("%d queue pairs of service %d: want 1 to %d of RC, UC or UD", b[17], b[16], MaxQPs)
		}
	} else if b[18] != 0 {
		return request{}, errors.New("shared receives without queue pairs of their own")
	}
	if w.rnrTimer > maxCode {
		return request{}, fmt.Errorf("RNR timer %d: want at most %d", w.rnrTimer, maxCode)
	}
	if w.size < 1 || w.size > MaxSize || w.recvs < 1 || w.recvs > MaxReceives || w.slot() > maxBuffer/w.recvs/w.queues() {
		return request{}, fmt.Errorf("%d receives of %d bytes: want at most %d bytes together", w.recvs, w.size, maxBuffer)
	}
	return w, nil
}

// Offsets of the words of a report.
const (
	reportReady   = 0  // 1 when the server has posted its receives
	reportCount   = 8  // number of messages received
	reportBad     = 16 // number of received messages with wrong bytes
	reportBadMsg  = 24 // number of the first message with wrong bytes
	reportBadByte = 32 // offset of the first wrong byte in this message
	reportBytes   = 40 // number of bytes received; 0 if the messages are not verified
	reportSize    = 48
)
