package memcached_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// model is what memcached would have and answer.
type model map[string]string

// run executes a command of two keys and short data that three bytes choose, and returns it with its answer.
func (m model) run(op, which, arg byte) (in, want string) {
	key, data := string("ab"[which%2]), strings.Repeat(string('0'+arg%10), 1+int(arg)%3)
	old, found := m[key]
	store := func(name, next string, ok bool) (string, string) {
		answer := "NOT_STORED\r\n"
		if ok {
			m[key], answer = next, "STORED\r\n"
		}
		return fmt.Sprintf("%s %s 0 0 %d\r\n%s\r\n", name, key, len(data), data), answer
	}
	switch op % 9 {
	case 0:
		return store("set", data, true)
	case 1:
		return store("add", data, !found)
	case 2:
		return store("replace", data, found)
	case 3:
		return store("append", old+data, found && len(old) < 12)
	case 4:
		return store("prepend", data+old, found && len(old) < 12)
	case 5:
		delete(m, key)
		return "delete " + key + "\r\n", map[bool]string{true: "DELETED\r\n", false: "NOT_FOUND\r\n"}[found]
	case 6:
		in = fmt.Sprintf("incr %s %d\r\n", key, arg)
		if !found {
			return in, "NOT_FOUND\r\n"
		}
		n, err := strconv.ParseUint(old, 10, 64)
		if err != nil {
			panic(err) // all data are digits
		}
		m[key] = strconv.FormatUint(n+uint64(arg), 10)
		return in, m[key] + "\r\n"
	case 7:
		clear(m)
		return "flush_all\r\n", "OK\r\n"
	}
	for _, k := range []string{"a", "b"} {
		if v, ok := m[k]; ok {
			want += fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\n", k, len(v), v)
		}
	}
	return "get a b\r\n", want + "END\r\n"
}

// FuzzCommands: a server answers any sequence of commands as a map does.
func FuzzCommands(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x08\x00\x00\x06\x00\x05\x05\x00\x00\x08\x00\x00"))
	f.Add([]byte("\x01\x00\x02\x01\x00\x02\x02\x01\x00\x03\x00\x07\x04\x00\x01\x08\x00\x00\x07\x00\x00\x08\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := model{}
		var in, want strings.Builder
		for ; len(b) >= 3; b = b[3:] {
			if op := b[0] % 9; (op == 3 || op == 4) && len(m[string("ab"[b[1]%2])]) >= 12 {
				continue // numbers stay below 64 bits
			}
			i, w := m.run(b[0], b[1], b[2])
			in.WriteString(i)
			want.WriteString(w)
		}
		s := serve(t, newTable())
		got := said(t, s, in.String()+"quit\r\n")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if want := strings.ReplaceAll(want.String(), "\r\n", "\n"); got != want {
			t.Errorf("%q is answered by\n%s\nwant\n%s", in.String(), got, want)
		}
	})
}
