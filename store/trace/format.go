package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/store/kv"
)

// Header is the first line of a trace.
const Header = "time_us,client,op,key,size"

// Limits of a trace: the number of operations, the largest client number, the largest size of a
// value, and the length of a line. The last two are in bytes.
const (
	MaxOps    = 10_000_000
	maxClient = 1 << 20
	maxSize   = 1 << 26
	maxLine   = 64 << 10
)

// kindNames are the words in column op.
var kindNames = map[kv.Kind]string{
	kv.KindRead: "get", kv.KindUpdate: "put", kv.KindInsert: "insert", kv.KindDelete: "delete", kv.KindScan: "scan", kv.KindReadModify: "rmw",
}

// Append appends the line of an operation.
func Append(b []byte, op kv.Op) []byte {
	b = strconv.AppendInt(b, op.At.Microseconds(), 10)
	b = strconv.AppendInt(append(b, ','), int64(op.Client), 10)
	b = append(append(append(b, ','), kindNames[op.Kind]...), ',')
	b = strconv.AppendUint(b, op.Key, 10)
	return append(strconv.AppendInt(append(b, ','), int64(op.Size), 10), '\n')
}

func Write(w io.Writer, ops []kv.Op) error {
	out := bufio.NewWriter(w)
	_, err := out.WriteString(Header + "\n")
	var line []byte
	for _, op := range ops {
		line = Append(line[:0], op)
		_, werr := out.Write(line)
		err = cmp.Or(err, werr)
	}
	return cmp.Or(err, out.Flush())
}

// Read reads a trace and returns its operations in the order of their times. If limit is positive,
// it reads the first limit operations.
func Read(r io.Reader, limit int) (ops []kv.Op, err error) {
	err = lines(r, func(text string, number int) error {
		if number == 1 {
			if text != Header {
				return fmt.Errorf("%.60q is no header of a trace: want %s; `rdmalab run convert` reads other formats", text, Header)
			}
			return nil
		}
		op, err := parse(text)
		if err == nil {
			ops, err = add(ops, op, limit)
		}
		return err
	})
	sortByTime(ops)
	return ops, err
}

// sortByTime sorts operations by their times. Operations with equal times stay in their order.
func sortByTime(ops []kv.Op) {
	slices.SortStableFunc(ops, func(a, b kv.Op) int { return cmp.Compare(a.At, b.At) })
}

// errEnough ends the reading of lines before the end of the file.
var errEnough = errors.New("enough")

// add appends an operation. If it is the last one that limit allows, add returns errEnough, so that
// no later line is read.
func add(ops []kv.Op, op kv.Op, limit int) ([]kv.Op, error) {
	if len(ops) == MaxOps {
		return ops, fmt.Errorf("more than %d operations: give a --limit", MaxOps)
	}
	if ops = append(ops, op); len(ops) == limit {
		return ops, errEnough
	}
	return ops, nil
}

// lines calls f for each line that is neither empty nor a comment. number counts these lines from
// 1. An error names the number of the line in the file.
func lines(r io.Reader, f func(text string, number int) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, maxLine), maxLine)
	line, number := 0, 0
	for in.Scan() {
		line++
		text := strings.TrimSpace(in.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		number++
		if err := f(text, number); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("line %d: %w", line+1, err)
	}
	if number == 0 {
		return errors.New("the trace is empty")
	}
	return nil
}

func parse(text string) (op kv.Op, err error) {
	fields := strings.Split(text, ",")
	if len(fields) != 5 {
		return op, fmt.Errorf("%d columns: want %s", len(fields), Header)
	}
	us, err := natural("time_us", fields[0], math.MaxInt64/int64(time.Microsecond))
	if err != nil {
		return op, err
	}
	client, err := natural("client", fields[1], maxClient)
	if err != nil {
		return op, err
	}
	size, err := natural("size", fields[4], maxSize)
	if err != nil {
		return op, err
	}
	op.At, op.Client, op.Size = time.Duration(us)*time.Microsecond, int(client), int(size)
	if op.Key, err = strconv.ParseUint(fields[3], 10, 64); err != nil {
		return op, fmt.Errorf("key %.40q: want a number of 64 bits", fields[3])
	}
	for kind, name := range kindNames {
		if name == fields[2] {
			op.Kind = kind
			return op, nil
		}
	}
	return op, fmt.Errorf("op %.20q: want get, put, insert, delete, scan or rmw", fields[2])
}

// natural parses a number from 0 to most. what names the number in the error.
func natural(what, text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%s %.40q: want a number from 0 to %d", what, text, most)
	}
	return n, nil
}

// Pack compresses a trace for a request to a daemon.
func Pack(ops []kv.Op) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	err := cmp.Or(Write(z, ops), z.Close())
	return out.Bytes(), err
}

// Unpack returns the trace that Pack has compressed.
func Unpack(b []byte) ([]kv.Op, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return Read(z, 0)
}
