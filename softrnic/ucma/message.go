package ucma

import (
	"encoding/binary"
	"errors"
)

// Lengths of the parts of a message in front of a command's arguments. They are a prefix, with the
// number of the event channel and 4 reserved bytes, and the header of the command.
const (
	prefixLen = 8
	headerLen = 8
	// MaxCommand is the largest length of a command in bytes. Arguments have at most 320 bytes, the
	// value of an option at most 1024.
	MaxCommand = 2048
)

// Command is a command as a program wrote it.
type Command struct {
	Op      Op
	Channel uint32
	// Args are the arguments. For SetOption, the value of the option follows them.
	Args []byte
}

var errCommand = errors.New("a message that is no command of a connection manager")

// ParseCommand parses a message of the preloaded library. Args points into b.
func ParseCommand(b []byte) (Command, error) {
	if len(b) < prefixLen+headerLen || len(b) > prefixLen+MaxCommand {
		return Command{}, errCommand
	}
	return Command{
		Channel: binary.NativeEndian.Uint32(b), Op: Op(binary.NativeEndian.Uint32(b[prefixLen:])), Args: b[prefixLen+headerLen:],
	}, nil
}

// decode decodes arguments of type A. ok is false if there are too few bytes. Newer libraries pass
// more bytes than a command needs.
func decode[A any](b []byte) (a A, ok bool) {
	_, err := binary.Decode(b, binary.NativeEndian, &a)
	return a, err == nil
}

func encode(v any) []byte {
	b, _ := binary.Append(nil, binary.NativeEndian, v) // cannot fail, because all sizes are fixed
	return b
}
