package ucma

import (
	"encoding/binary"
	"errors"
)

// Lengths in front of the arguments of a command: the number of the event channel that the program
// has written to with 4 reserved bytes, and the header of the command.
const (
	prefixLen = 8
	headerLen = 8
	// MaxCommand bounds the bytes of a command; arguments have at most 320, and the value of an
	// option at most 1024.
	MaxCommand = 2048
)

// Command is a command as a program wrote it.
type Command struct {
	Op      Op
	Channel uint32
	// Args are the arguments; the value of an option follows those of SetOption.
	Args []byte
}

var errCommand = errors.New("a message that is no command of a connection manager")

// ParseCommand takes a message of the preloaded library apart. Args are part of b.
func ParseCommand(b []byte) (Command, error) {
	if len(b) < prefixLen+headerLen || len(b) > prefixLen+MaxCommand {
		return Command{}, errCommand
	}
	return Command{
		Channel: binary.NativeEndian.Uint32(b), Op: Op(binary.NativeEndian.Uint32(b[prefixLen:])), Args: b[prefixLen+headerLen:],
	}, nil
}

// decode reads arguments of type A. False: there are too few bytes. A program may give more than a
// command needs: newer libraries do.
func decode[A any](b []byte) (a A, ok bool) {
	_, err := binary.Decode(b, binary.NativeEndian, &a)
	return a, err == nil
}

// encode returns the bytes of a struct of this package.
func encode(v any) []byte {
	b, _ := binary.Append(nil, binary.NativeEndian, v) // fixed sizes: it does not fail
	return b
}
