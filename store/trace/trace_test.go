package trace

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/store/kv"
)

var write = flag.Bool("write", false, "write the small trace")

// small describes the shipped trace: 8 clients, 100 keys, 1000 operations.
func small(t *testing.T) []kv.Op {
	t.Helper()
	w, err := kv.ParseMix("get=70,put=20,insert=5,delete=5")
	if err != nil {
		t.Fatal(err)
	}
	return kv.Generate(kv.RunConfig{
		Workload: w, Keys: 100, Zipf: 0.99, Clients: 8, Rate: 100, Sizes: &kv.Sizes{Min: 16, Max: 200, Zipf: 0.8},
	}, 1000, 1, nil)
}

// The shipped trace is what the generator makes.
func TestSmallTrace(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, small(t)); err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := os.WriteFile("small.csv", out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile("small.csv")
	if err != nil || !bytes.Equal(file, out.Bytes()) {
		t.Errorf("small.csv is stale (%v): go test ./store/trace -run SmallTrace -args -write", err)
	}
}

func TestRoundTrip(t *testing.T) {
	ops := small(t)
	packed, err := Pack(ops)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Unpack(packed)
	for i := range ops {
		ops[i].At = ops[i].At.Truncate(time.Microsecond)
	}
	if err != nil || !reflect.DeepEqual(ops, back) {
		t.Errorf("%d operations became %d: %v", len(ops), len(back), err)
	}
	if first, err := Read(strings.NewReader(Header+"\n5,0,put,1,9\n3,1,get,2,0\n7,0,get,1,0\n"), 2); err != nil || len(first) != 2 || first[0].Key != 2 {
		t.Errorf("the first two: %+v, %v", first, err)
	}
}

func TestBadTraces(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "empty",
		"# only a comment\n":             "empty",
		"a,b\n":                          "run convert",
		Header + "\n1,2,get,3\n":         "line 2: 4 columns",
		Header + "\n\n#\n-1,2,get,3,0\n": "line 4: time_us",
		Header + "\n9223372036854775807,2,get,3,0\n":   "time_us",
		Header + "\n1,9999999,get,3,0\n":               "client",
		Header + "\n1,2,fly,3,0\n":                     "want get, put",
		Header + "\n1,2,get,-3,0\n":                    "64 bits",
		Header + "\n1,2,put,3,99999999999\n":           "size",
		Header + "\n" + strings.Repeat("9", maxLine+1): "line 2: ",
	} {
		if ops, err := Read(strings.NewReader(text), 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %d operations, %v; want %q", text, len(ops), err, want)
		}
	}
	if _, err := Unpack([]byte("no gzip")); err == nil {
		t.Error("text that is not compressed was read")
	}
}

func TestTwitter(t *testing.T) {
	got, err := Convert(strings.NewReader("7,k:a,3,100,c9,get,0\n7,k,b,3,50,c1,set,60\n7,k:a,3,0,c9,touch,0\n8,k:a,3,5,c9,add,0\n8,k:a,3,0,c1,delete,0\n"), "twitter", 0)
	want := &Converted{Keys: 2, Clients: 2, Skipped: 1, Ops: []kv.Op{
		{Kind: kv.KindRead},
		{At: 500 * time.Millisecond, Client: 1, Kind: kv.KindUpdate, Key: 1, Size: 50},
		{At: time.Second, Kind: kv.KindInsert, Size: 5},
		{At: 1500 * time.Millisecond, Client: 1, Kind: kv.KindDelete},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestCacheLib(t *testing.T) {
	older := "key,op,size,op_count,key_size\n166,SET,82,1,40\n167,GET,0,3,40\n166,DELETE,5,1,40\n1,FLY,0,1,1\n"
	got, err := Convert(strings.NewReader(older), "cachelib", 0)
	want := &Converted{Keys: 2, Clients: 2, Skipped: 1, Ops: []kv.Op{
		{Kind: kv.KindUpdate, Size: 82},
		{Client: 1, Kind: kv.KindRead, Key: 1},
		{Client: 1, Kind: kv.KindRead, Key: 1},
		{Client: 1, Kind: kv.KindRead, Key: 1},
		{Kind: kv.KindDelete},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	newer := "op_time,key,key_size,op,op_count,size,cache_hits,ttl\n100,9,3,SET,1,65,0,0\n103,9,3,GET_LEASE,1,65,1,0\n"
	got, err = Convert(strings.NewReader(newer), "cachelib", 0)
	want = &Converted{Keys: 1, Clients: 1, Ops: []kv.Op{{Kind: kv.KindUpdate, Size: 65}, {At: 3 * time.Second, Kind: kv.KindRead}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err = Convert(strings.NewReader(older), "cachelib", 2); err != nil || len(got.Ops) != 2 {
		t.Errorf("the first two: %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"key,op\n": "no column size", "key,op,size\n1,GET\n": "line 2: 2 columns", "key,op,size,op_count\n1,GET,0,-1\n": "op_count",
		"key,op,size,key\n1,GET,0\n": "line 1: column key is named twice", "key,op,size,,\n1,GET,0,\n": "line 2: 4 columns",
	} {
		if _, err := Convert(strings.NewReader(text), "cachelib", 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	late := "0,a,1,1,c,get,0\n" + strings.Repeat("9223372036,a,1,1,c,get,0\n", 10) // spread over that second, they would end behind the last time
	if _, err := Convert(strings.NewReader(late), "twitter", 0); err == nil {
		t.Error("a time that is too large is accepted")
	}
	if _, err := Convert(strings.NewReader("x"), "redis", 0); err == nil || !strings.Contains(err.Error(), "twitter or cachelib") {
		t.Error(err)
	}
}

// What lies behind the last operation that was asked for is not looked at: neither its clients and
// keys nor a line that was cut off.
func TestLimit(t *testing.T) {
	for _, rest := range []string{"", "8,b,1,0,d,get,0\n", "8,b,1"} {
		got, err := Convert(strings.NewReader("7,a,1,9,c,set,0\n"+rest), "twitter", 1)
		if err != nil || len(got.Ops) != 1 || got.Keys != 1 || got.Clients != 1 {
			t.Errorf("twitter, and then %q: %+v, %v", rest, got, err)
		}
	}
	for _, rest := range []string{"", "65,GET,0\n", "65,G"} {
		got, err := Convert(strings.NewReader("key,op,size\n64,GET,0\n"+rest), "cachelib", 1)
		if err != nil || len(got.Ops) != 1 || got.Keys != 1 || got.Clients != 1 {
			t.Errorf("cachelib, and then %q: %+v, %v", rest, got, err)
		}
	}
	for _, rest := range []string{"", "6,0,get,2,0\n", "6,0,g"} {
		if got, err := Read(strings.NewReader(Header+"\n5,0,get,1,0\n"+rest), 1); err != nil || len(got) != 1 {
			t.Errorf("%q behind the limit: %+v, %v", rest, got, err)
		}
	}
	got, err := Convert(strings.NewReader("key,op,size,op_count\n1,GET,0,0\n2,GET,0,1\n"), "cachelib", 0)
	if err != nil || len(got.Ops) != 1 || got.Keys != 1 || got.Clients != 1 || got.Ops[0].Key != 0 {
		t.Errorf("a line that is repeated 0 times: %+v, %v", got, err)
	}
}

// The output is in the order of the times, also if the input is not.
func TestCacheLibOrder(t *testing.T) {
	got, err := Convert(strings.NewReader("op_time,key,op,size\n5,1,GET,0\n9,1,DELETE,0\n7,1,SET,8\n"), "cachelib", 0)
	if err != nil || len(got.Ops) != 3 || got.Ops[1].Kind != kv.KindUpdate || got.Ops[2].At != 4*time.Second {
		t.Errorf("%+v, %v", got, err)
	}
}

// A trace with more clients than Read accepts is not written.
func TestTooManyClients(t *testing.T) {
	var in bytes.Buffer
	for i := range maxClient + 2 {
		fmt.Fprintf(&in, "7,a,1,0,c%d,get,0\n", i)
	}
	if _, err := Convert(&in, "twitter", 0); err == nil || !strings.Contains(err.Error(), "line 1048578: more than 1048577 clients: give a --limit") {
		t.Error(err)
	}
}

// Lines are made of columns, most of which are right, so that the parsers come far. What they accept
// can be written and read again.
func FuzzTraces(f *testing.F) {
	f.Add([]byte{0}, []byte("xyz"))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, []byte("12,get"))
	words := []string{
		"0", "1", "17", "1000000", "18446744073709551615", "-1", "get", "put", "insert", "scan", "rmw", "SET", "GET", "GET_LEASE", "DELETE", "set",
		"add", "delete", "key", "op", "size", "op_count", "op_time", ",", ",", ",", ",", "\n", "\n", "#", "", Header + "\n",
	}
	f.Fuzz(func(t *testing.T, choice, raw []byte) {
		var text strings.Builder
		for _, c := range choice {
			if int(c) >= len(words) {
				text.Write(raw[:min(len(raw), int(c)%16)])
				continue
			}
			text.WriteString(words[c])
		}
		for _, head := range []string{"", Header + "\n", "key,op,size,op_count\n", "op_time,key,op,op_count,size\n"} {
			in := head + text.String()
			ops, err := Read(strings.NewReader(in), 0)
			if err != nil {
				ops = nil
			}
			for _, format := range Formats {
				if c, err := Convert(strings.NewReader(in), format, 1000); err == nil {
					ops = append(ops, c.Ops...)
					for _, op := range c.Ops {
						if op.Key >= uint64(c.Keys) || op.Client >= c.Clients {
							t.Errorf("%q: %+v of %d keys and %d clients", in, op, c.Keys, c.Clients)
						}
					}
				}
			}
			var out bytes.Buffer
			if err := Write(&out, ops); err != nil {
				t.Fatal(err)
			}
			if back, err := Read(&out, 0); err != nil || len(back) != len(ops) {
				t.Errorf("%q: %d operations became %d: %v", in, len(ops), len(back), err)
			}
		}
	})
}
