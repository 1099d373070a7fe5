package trunkport

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// feature is what saves system calls and is not there on every kernel and device. A port works without.
type feature uint8

const (
	noSegment  feature = iota // UDP_SEGMENT: the kernel cuts a message into datagrams
	noGRO                     // UDP_GRO: the kernel joins datagrams
	noSendmmsg                // one system call sends several messages
	noRecvmmsg                // one system call receives several messages
	features
)

func (f feature) String() string {
	return [...]string{"UDP_SEGMENT", "UDP_GRO", "sendmmsg", "recvmmsg"}[f]
}

// refusals are the features that the kernel has refused to a port, which does not ask for them again.
type refusals struct {
	is    [features]unix.Errno
	count uint64
}

func (r *refusals) has(f feature) bool { return r.is[f] != 0 }

// add notes a refusal, and reports whether it is the first one of the feature.
func (r *refusals) add(f feature, errno unix.Errno) bool {
	if r.has(f) || errno == 0 {
		return false
	}
	r.is[f] = errno
	r.count++
	return true
}

// text names the features that are refused; "" if there are none.
func (r *refusals) text() string {
	var list []string
	for f, errno := range r.is {
		if errno != 0 {
			list = append(list, fmt.Sprintf("%v (%v)", feature(f), errno))
		}
	}
	if list == nil {
		return ""
	}
	return "this machine's kernel or device refuses " + strings.Join(list, ", ") + ": the trunk works, and takes more processor time"
}
