package uverbs

import (
	"bytes"
	"encoding/binary"
)

// Magic begins the first message of the preloaded library. Its last character is the version of the
// protocol between the library and the daemon.
const Magic = "rxeshim2"

// MagicManager begins the first message of a connection for the commands of librdmacm. That message
// carries no descriptors; see package ucma. MagicManager is as long as Magic.
const MagicManager = "rxecmgr2"

// MagicChild begins the first message of a child of fork that uses a device which its parent has opened.
// It is as long as Magic.
const MagicChild = "rxechld2"

// TokenLen is the length of Hello.Token in bytes.
const TokenLen = 16

// HelloLen is the length of the first message in bytes: Magic, MagicManager or MagicChild, the program's name,
// padded with zeros to 16 bytes, and the token.
const HelloLen = len(Magic) + 16 + TokenLen

// Descriptors in the first message, in this order: the program's own /proc/self/mem and
// /proc/self/maps. HelloFDs is their number. A child of fork (MagicChild) sends the memory file of its
// parent's device in addition: only who has the device has the file.
const (
	HelloMem = iota
	HelloMaps
	HelloFDs
	HelloArea     = HelloFDs
	HelloChildFDs = HelloFDs + 1
)

// Descriptors in the answer to the first message, in this order: the memory file (a memfd) with the
// control page (see ring.Control) and the rings of the verbs context, and the socket by which the
// program wakes the daemon. WelcomeFDs is their number.
const (
	WelcomeArea = iota
	WelcomeWake
	WelcomeFDs
)

// Hello is the first message that the preloaded library sends on a connection to the daemon.
type Hello struct {
	// Name is the name of the program.
	Name string
	// Token is a random number of the process, the same in all its connections. No other process knows
	// it.
	Token [TokenLen]byte
	// Manager: the connection is for the commands of librdmacm.
	Manager bool
	// Child: the connection is for commands of a child of fork on its parent's device.
	Child bool
}

// ParseHello decodes a first message. ok is false if it is not one of the preloaded library.
func ParseHello(b []byte) (h Hello, ok bool) {
	if len(b) != HelloLen {
		return h, false
	}
	switch string(b[:len(Magic)]) {
	case Magic:
	case MagicManager:
		h.Manager = true
	case MagicChild:
		h.Child = true
	default:
		return h, false
	}
	name, token := b[len(Magic):HelloLen-TokenLen], b[HelloLen-TokenLen:]
	name, _, _ = bytes.Cut(name, []byte{0})
	h.Name, h.Token = string(name), [TokenLen]byte(token)
	return h, true
}

// PrefixLen is the length of the prefix of a command in bytes: the number of the completion channel
// whose descriptor the command names, or NoChannel, and 4 reserved bytes. In the prefix of a
// command of librdmacm, the number is that of an event channel.
const PrefixLen = 8

// NoChannel means that there is no completion channel.
const NoChannel = ^uint32(0)

// Answer is the daemon's answer to a command.
type Answer struct {
	// Errno is 0, or the error of the command as an errno of Linux.
	Errno uint32
	// Drain tells the library which events it must discard. In an answer of verbs it is a bit mask:
	// bit 1<<i is set if word i of the data counts events that the program may not have read yet. The
	// library removes the unread events of Element from the descriptor on which the program would
	// read them, and subtracts their number from the word. For a destroyed completion queue, word 0
	// counts events of Channel. All other words count asynchronous events.
	//
	// In an answer of the connection manager, Drain is a number: so many events of Channel do not
	// exist any more. The descriptor of the channel has one byte for each event to read, and the
	// library removes as many bytes.
	Drain uint32
	// Channel is the channel that Drain is about, or NoChannel.
	Channel uint32
	// Number is the number of the new channel whose descriptor comes with the answer, if any.
	Number uint32
	// Element is the tag of the destroyed object: its events end with these 32 bits, behind what libibverbs
	// reads.
	Element uint64
	// Data is the encoded result of the command.
	Data []byte
}

// AnswerLen is the length of an encoded Answer without its data, in bytes.
const AnswerLen = 24

func (a *Answer) AppendTo(b []byte) []byte {
	for _, v := range [...]uint32{a.Errno, a.Drain, a.Channel, a.Number} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	b = binary.NativeEndian.AppendUint64(b, a.Element)
	return append(b, a.Data...)
}
