package wire

import (
	"errors"
	"fmt"
)

// MAC is an Ethernet address.
type MAC [6]byte

// broadcast is the address of all stations.
var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ErrMAC means that a text is no Ethernet address.
var ErrMAC = errors.New("not an Ethernet address like 02:00:5e:10:00:01")

// IsMulticast reports whether m is a group address; broadcast is one, too.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// String returns six pairs of hex digits with colons.
func (m MAC) String() string {
	const digits = "0123456789abcdef"
	var b [17]byte
	for i, x := range m {
		if i > 0 {
			b[3*i-1] = ':'
		}
		b[3*i], b[3*i+1] = digits[x>>4], digits[x&15]
	}
	return string(b[:])
}

// ParseMAC parses a text as String returns it. Upper and lower case are the same, and '-' may stand
// for ':'.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 {
		return MAC{}, fmt.Errorf("%q: %w", s, ErrMAC)
	}
	for i := range m {
		hi, ok1 := hexDigit(s[3*i])
		lo, ok2 := hexDigit(s[3*i+1])
		if !ok1 || !ok2 || (i > 0 && s[3*i-1] != ':' && s[3*i-1] != '-') {
			return MAC{}, fmt.Errorf("%q: %w", s, ErrMAC)
		}
		m[i] = hi<<4 | lo
	}
	return m, nil
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// MarshalText returns the text of String, for JSON and YAML.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses a text as ParseMAC does.
func (m *MAC) UnmarshalText(text []byte) error {
	v, err := ParseMAC(string(text))
	if err == nil {
		*m = v
	}
	return err
}
