package nldev

import "strconv"

// errno is an error number of Linux, which a reply carries negated (struct nlmsgerr).
type errno uint32

func (e errno) Error() string { return "error " + strconv.FormatUint(uint64(e), 10) }

// Numbers of errors (errno.h).
const (
	noEntry      errno = 2
	ioError      errno = 5
	noDevice     errno = 19
	invalid      errno = 22
	notSupported errno = 95
)

// Flags and types of netlink messages (linux/netlink.h), and address families (linux/socket.h).
const (
	flagRequest = 0x1
	flagMulti   = 0x2
	flagAck     = 0x4
	flagDump    = 0x300

	typeError = 2
	typeDone  = 3

	familyIPv4 = 2
	familyIPv6 = 10
)
