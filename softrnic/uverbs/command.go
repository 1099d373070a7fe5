package uverbs

import (
	"encoding/binary"
	"errors"
)

// Op is the number of a command: one that libibverbs writes to /dev/infiniband/uverbs0, or one of
// the preloaded library itself.
type Op uint32

// Commands (enum ib_uverbs_write_cmds). Repost and those behind it exist only between the preloaded library and
// the daemon. When an object is destroyed, the library removes the object's unread events; with
// Repost it gives back the events of other objects that it has read in doing so. With ShareMemory
// it asks for memory with which it replaces pages of the program that are about to be registered.
// With UnshareMemory it asks which of these pages it may make private again.
const (
	GetContext        Op = 0
	QueryDevice       Op = 1
	QueryPort         Op = 2
	AllocPD           Op = 3
	DeallocPD         Op = 4
	CreateAH          Op = 5
	DestroyAH         Op = 8
	RegMR             Op = 9
	ReregMR           Op = 11
	DeregMR           Op = 13
	AllocMW           Op = 14
	DeallocMW         Op = 16
	CreateCompChannel Op = 17
	CreateCQ          Op = 18
	ResizeCQ          Op = 19
	DestroyCQ         Op = 20
	ReqNotifyCQ       Op = 23
	CreateQP          Op = 24
	QueryQP           Op = 25
	ModifyQP          Op = 26
	DestroyQP         Op = 27
	PostSend          Op = 28 // only if the preloaded library does not know that the queue pair takes sends
	AttachMulticast   Op = 30
	DetachMulticast   Op = 31
	CreateSRQ         Op = 32
	ModifySRQ         Op = 33
	QuerySRQ          Op = 34
	DestroySRQ        Op = 35
	OpenXRCD          Op = 37 // a descriptor of the file comes with the message, unless XRCDArgs.FD is -1
	CloseXRCD         Op = 38
	CreateXSRQ        Op = 39
	OpenQP            Op = 40

	ModifyCQ Op = 57 // only as an extended command

	Extended Op = 0x80000000 // no command, but the flag of an extended command
	Repost   Op = 0x7fff0000

	ShareMemory   Op = 0x7fff0003
	UnshareMemory Op = 0x7fff0004
)

// Commands of the provider for libibverbs that is in folder provider. A kernel's driver has them as
// ioctls, or not at all. They begin with the pointer to the memory for the answer, whether they have
// one or not. QueryDM and QueryMR are for objects that another context of the device has made.
const (
	AllocDM    Op = 0x7fff0080
	FreeDM     Op = 0x7fff0081
	CopyToDM   Op = 0x7fff0082 // the bytes follow the arguments, a DMPlace
	CopyFromDM Op = 0x7fff0083
	RegDM      Op = 0x7fff0084
	QueryDM    Op = 0x7fff0085
	QueryMR    Op = 0x7fff0086

	QueryLimits Op = 0x7fff0087

	// Send rings in memory of the program; see package sendring.
	UseRing  Op = 0x7fff0088
	Doorbell Op = 0x7fff0089
	CQNumber Op = 0x7fff008a // the number by which a WAIT names a completion queue

	firstOfProvider = AllocDM
	lastOfProvider  = CQNumber
)

const (
	headerLen   = 8  // the header of a command (ib_uverbs_cmd_hdr), in bytes
	exHeaderLen = 16 // the second header of an extended command (ib_uverbs_ex_cmd_hdr), in bytes
	// responseLen is the length of the pointer to the memory for the answer. The arguments of most
	// commands begin with this pointer.
	responseLen = 8
	opMask      = 0xff // the bits of a command's number; the others are flags
	// MaxCommand is the largest length of a command in bytes, with its headers, without the prefix.
	MaxCommand = 4096
)

// Command is a command as a program wrote it.
type Command struct {
	Op      Op     // with the flag Extended for an extended command
	Channel uint32 // from the prefix; see PrefixLen
	// Args are the arguments, without the pointer to the memory for the answer.
	Args []byte
}

var errCommand = errors.New("a message that is no command")

// noPointer has the commands whose arguments do not begin with a pointer to the memory for the
// answer.
var noPointer = map[Op]bool{
	DeallocPD: true, DestroyAH: true, DeregMR: true, DeallocMW: true, ReqNotifyCQ: true, ModifyQP: true, ModifySRQ: true,
	AttachMulticast: true, DetachMulticast: true, CloseXRCD: true, Repost: true,
}

// ParseCommand parses a message of a program with its prefix. c.Args points into b.
func ParseCommand(b []byte) (c Command, err error) {
	if len(b) < PrefixLen+headerLen || len(b) > PrefixLen+MaxCommand {
		return c, errCommand
	}
	c.Channel = binary.NativeEndian.Uint32(b)
	b = b[PrefixLen:]
	op := Op(binary.NativeEndian.Uint32(b))
	b = b[headerLen:]
	switch {
	case op == Repost || op == ShareMemory || op == UnshareMemory:
		c.Op, c.Args = op, b
		return c, nil
	case op >= firstOfProvider && op <= lastOfProvider:
		if len(b) < responseLen {
			return c, errCommand
		}
		c.Op, c.Args = op, b[responseLen:]
		return c, nil
	case op&Extended != 0:
		if len(b) < exHeaderLen {
			return c, errCommand
		}
		c.Op, c.Args = op&(Extended|opMask), b[exHeaderLen:]
		return c, nil
	}
	c.Op = op & opMask
	if !noPointer[c.Op] {
		if len(b) < responseLen {
			return c, errCommand
		}
		b = b[responseLen:]
	}
	c.Args = b
	return c, nil
}

// Decode decodes arguments of type A, one of the structs of this package. ok is false if there are
// too few bytes. A program may pass more bytes than a command needs.
func Decode[A any](c Command) (a A, ok bool) {
	_, err := binary.Decode(c.Args, binary.NativeEndian, &a)
	return a, err == nil
}

// Encode encodes answers, one after the other: structs of this package, or other values of fixed
// size.
func Encode(answers ...any) []byte {
	var b []byte
	for _, a := range answers {
		b, _ = binary.Append(b, binary.NativeEndian, a) // cannot fail, because all sizes are fixed
	}
	return b
}

// DecodeWith is Decode for a command whose arguments are followed by bytes. data points into c.Args.
func DecodeWith[A any](c Command) (a A, data []byte, ok bool) {
	n, err := binary.Decode(c.Args, binary.NativeEndian, &a)
	if err != nil {
		return a, nil, false
	}
	return a, c.Args[n:], true
}
