package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/client"
	"github.com/rdmalab/rdmalab/store/kv"
)

// inMemory is a pool without a rack; client.Open returns such a one of a store.
func inMemory() *client.Pool {
	values := kv.NewMap(1000)
	p, err := client.New(client.Config{Open: func(clock.Time) (kv.Store, error) { return values, nil }})
	if err != nil {
		panic(err)
	}
	return p
}

// A program on a host of a rack, started by `rdmalab exec cn0 -- PROGRAM`, opens a store by its name.
// It imports the store, or store/all.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := client.Open(ctx, "my own", client.Options{Clients: 8})
	fmt.Println(err != nil)
	// Output: true
}

// The keys of a pool are byte strings.
func ExamplePool() {
	ctx := context.Background()
	s := inMemory()
	defer s.Close()

	fmt.Println(s.Put(ctx, []byte("city"), []byte("Bern")))
	fmt.Println(s.Upsert(ctx, []byte("city"), []byte("Bern")))
	fmt.Println(s.Insert(ctx, []byte("city"), []byte("Basel")))
	value, err := s.Get(ctx, []byte("city"))
	fmt.Printf("%s %v\n", value, err)
	fmt.Println(s.Delete(ctx, []byte("city")))
	// Output:
	// no such key
	// <nil>
	// key exists
	// Bern <nil>
	// <nil>
}

// Several operations are in progress at a time; each has a result of its own.
func ExampleKeys_MultiGet() {
	ctx := context.Background()
	s := inMemory()
	defer s.Close()

	_ = s.Upsert(ctx, []byte("a"), []byte("1"))
	fmt.Println(s.MultiPut(ctx, [][]byte{[]byte("a"), []byte("b")}, [][]byte{[]byte("2"), []byte("3")}))
	for _, r := range s.MultiGet(ctx, []byte("a"), []byte("b")) {
		fmt.Printf("%q %v\n", r.Value, r.Err)
	}
	// Output:
	// [<nil> no such key]
	// "2" <nil>
	// "" no such key
}

// Start returns at once.
func ExampleKeys_Start() {
	ctx := context.Background()
	s := inMemory()
	defer s.Close()

	pending := s.Start(ctx, client.Op[[]byte]{Kind: client.Insert, Key: []byte("k"), Value: []byte("v")})
	// … other work …
	fmt.Println(pending.Wait().Err)
	// Output: <nil>
}

// A store that keeps its keys in order can scan. Its keys are numbers.
func ExamplePool_Scan() {
	ctx := context.Background()
	s := inMemory()
	defer s.Close()

	for _, key := range []uint64{30, 10, 20} {
		if err := s.Numbers().Insert(ctx, key, fmt.Append(nil, "value ", key)); err != nil {
			fmt.Println(err)
		}
	}
	records, failed := s.Scan(ctx, 11)
	for key, value := range records {
		fmt.Printf("%d: %s\n", key, value)
	}
	fmt.Println(failed())
	// Output:
	// 20: value 20
	// 30: value 30
	// <nil>
}

// A store's limit is an error that names it.
func ExamplePool_MaxValue() {
	ctx := context.Background()
	s := inMemory()
	defer s.Close()

	fmt.Println(s.MaxValue(ctx))
	err := s.Insert(ctx, []byte("key"), slices.Repeat([]byte("x"), 1000))
	fmt.Println(errors.Is(err, kv.ErrTooLarge))
	fmt.Println(err)
	// Output:
	// 1000 <nil>
	// true
	// value is too large: a key of 3 bytes and a value of 1000 make an entry of 1007; the store's limit is 1000
	// nothing was changed
}
