package mad

import (
	"errors"
	"time"
)

// ErrNotCM means that a well-formed MAD is not a message of this version of the communication
// manager.
var ErrNotCM = errors.New("no message of the communication manager")

// CommID is the number of a connection on one side; 0 means none.
type CommID uint32

// ServiceID names the service of a request (A3.2.3). Those of RDMA-CM have the form
// 0x0000000001sspppp, with a port space ss and a port pppp; see PortService.
type ServiceID uint64

// timeUnit is the unit of the time codes of the specification.
const timeUnit = 4096 * time.Nanosecond

// Time returns the duration of a time code: 4.096 µs · 2^code (IBTA 12.7.34). Codes have 5 bits; 31
// is 2.4 hours.
func Time(code uint8) time.Duration { return timeUnit << (code & mask5) }
