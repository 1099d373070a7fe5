package uverbs

import "encoding/binary"

// Magic begins the first message of the preloaded library. Its last byte is the version of the
// protocol between it and the daemon.
const Magic = "rxeshim1"

// HelloLen is the length of the first message: Magic and the program's name, padded with zeros.
const HelloLen = len(Magic) + 16

// Descriptors that come with the first message, in this order: the program's own /proc/self/mem and
// /proc/self/maps.
const (
	HelloMem = iota
	HelloMaps
	HelloFDs
)

// Descriptors that the answer of the first message carries, in this order: the memory file of the
// context and the socket by which the program wakes the daemon.
const (
	WelcomeArea = iota
	WelcomeWake
	WelcomeFDs
)

// ParseHello returns the program's name. False: this is no first message of the library.
func ParseHello(b []byte) (name string, ok bool) {
	if len(b) != HelloLen || string(b[:len(Magic)]) != Magic {
		return "", false
	}
	b = b[len(Magic):]
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), true
		}
	}
	return string(b), true
}

// PrefixLen is the length of what precedes the bytes of a command: the number of the completion
// channel whose descriptor the command names, or NoChannel, and 4 reserved bytes.
const PrefixLen = 8

// NoChannel is the number of no completion channel.
const NoChannel = ^uint32(0)

// Answer is what the daemon answers to a command.
type Answer struct {
	// Errno is 0, or the error of the command.
	Errno uint32
	// Drain has the bit 1<<i set if word i of the data counts events that the program may not have
	// read: the library removes those of Element that are unread from the descriptor, and subtracts
	// them. Word 0 of a destroyed completion queue counts events of Channel, all others count
	// asynchronous events.
	Drain   uint32
	Channel uint32
	// Number is the number of the completion channel that the descriptor belongs to, if the answer
	// has one.
	Number  uint32
	Element uint64
	Data    []byte
}

// AnswerLen is the length of an Answer without its data.
const AnswerLen = 24

// AppendTo appends the bytes of a.
func (a *Answer) AppendTo(b []byte) []byte {
	for _, v := range [...]uint32{a.Errno, a.Drain, a.Channel, a.Number} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	b = binary.NativeEndian.AppendUint64(b, a.Element)
	return append(b, a.Data...)
}
