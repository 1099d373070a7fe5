// Package exercise has the exercises of `rdmalab exercise`: tasks on a rack that check themselves. An
// exercise prepares the rack, for example by a fault that the learner must find, and its check looks at the
// rack, runs operations on it, and compares the learner's answers. The texts are Markdown files.
package exercise

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Exercise is one exercise.
type Exercise struct {
	// Name is what the command line calls it, and the name of its text.
	Name string
	// Answers are the keys of the answers that the check takes, in the order of the questions.
	Answers []string
	// Own is true if the learner brings the rack up, with a program of their own.
	Own bool
	// needs returns what the rack lacks; nil means nothing.
	needs func(*rackfile.Rack) error
	// prepare makes the problem, and notes in the Lab's state what check must know. nil means that there
	// is nothing to prepare.
	prepare func(context.Context, *Lab) error
	// check reports what is right and what is missing.
	check func(context.Context, *Lab, *Report) error
}

// all lists the exercises in the order of a course.
var all = []Exercise{lostPacket, refusedWrite, silentServer, contendedLock, switchProgram}

// All returns the exercises in the order of a course.
func All() []Exercise { return slices.Clone(all) }

// Find returns the exercise with this name.
func Find(name string) (*Exercise, bool) {
	i := slices.IndexFunc(all, func(e Exercise) bool { return e.Name == name })
	if i < 0 {
		return nil, false
	}
	return &all[i], true
}

// ErrNotPrepared means that an exercise was not prepared on this rack.
var ErrNotPrepared = errors.New("is not prepared on this rack")

// Lab is a rack with an exercise on it.
type Lab struct {
	Rack *rack.Rack
	// Client and Server are the first compute host and the first memory server of the rack.
	Client, Server string

	exercise *Exercise
	state    state
	random   *rand.Rand
}

// state is what an exercise keeps on the rack from its preparation to its check.
type state struct {
	Seed uint64 `json:"seed"`
	// Server is the memory server that silentServer has made silent, and Fault the fault's name.
	Server string `json:"server,omitempty"`
	Fault  string `json:"fault,omitempty"`
	// Reason is vendor_err of the refused WRITE, and Key its R_Key.
	Reason uint32 `json:"reason,omitempty"`
	Key    uint32 `json:"key,omitempty"`
}

// On returns a Lab with the exercise on a rack that is up. The error says what the rack lacks.
func (e *Exercise) On(r *rack.Rack) (*Lab, error) {
	if r.Spec.Fabric != nil {
		return nil, fmt.Errorf("exercises need a rack with one switch; rack %q has a fabric: choose another by --rack", r.Spec.Name)
	}
	clients, servers := r.Spec.ByRole(rackfile.Compute), r.Spec.ByRole(rackfile.Memory)
	if len(clients) == 0 || len(servers) == 0 {
		return nil, fmt.Errorf("exercises need a rack with a compute host and a memory server; rack %q lacks one: choose another by --rack", r.Spec.Name)
	}
	if e.needs != nil {
		if err := e.needs(r.Spec); err != nil {
			return nil, err
		}
	}
	return &Lab{Rack: r, Client: clients[0].Name, Server: servers[0].Name, exercise: e}, nil
}

// Prepare makes the problem on the rack. The seed decides what differs from learner to learner. A second
// call makes the problem again; what the first one has broken stays broken until it is repaired.
func (l *Lab) Prepare(ctx context.Context, seed uint64) error {
	l.state = state{Seed: seed}
	name := sha256.Sum256([]byte(l.exercise.Name))
	l.random = rand.New(rand.NewPCG(seed, binary.LittleEndian.Uint64(name[:])))
	if err := os.MkdirAll(l.Rack.Paths.Exercises(), 0o700); err != nil {
		return err
	}
	if l.exercise.prepare != nil {
		if err := l.exercise.prepare(ctx, l); err != nil {
			return fmt.Errorf("prepare exercise %s: %w", l.exercise.Name, err)
		}
	}
	data, err := json.Marshal(l.state)
	if err != nil {
		return err
	}
	return os.WriteFile(l.stateFile(), data, 0o600)
}

// Check checks what the learner has done, with the answers that they give. The error is one of the check
// itself: what is wrong with the learner's work is in the report.
func (l *Lab) Check(ctx context.Context, answers map[string]string) (*Report, error) {
	data, err := os.ReadFile(l.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("exercise %s %w: run `rdmalab exercise %s` first", l.exercise.Name, ErrNotPrepared, l.exercise.Name)
	}
	if err == nil {
		err = json.Unmarshal(data, &l.state)
	}
	if err != nil {
		return nil, fmt.Errorf("exercise %s: %w; prepare it again by `rdmalab exercise %s`", l.exercise.Name, err, l.exercise.Name)
	}
	r := &Report{answers: answers}
	if err := l.exercise.check(ctx, l, r); err != nil {
		return nil, fmt.Errorf("check exercise %s: %w", l.exercise.Name, err)
	}
	return r, nil
}

// CheckAnswers returns an error for an answer that the exercise does not ask for.
func (e *Exercise) CheckAnswers(answers map[string]string) error {
	for key := range answers {
		if !slices.Contains(e.Answers, key) {
			if len(e.Answers) == 0 {
				return fmt.Errorf("exercise %s asks for no answer; leave --answer out", e.Name)
			}
			return fmt.Errorf("exercise %s does not ask for %q; its answers: %s", e.Name, key, strings.Join(e.Answers, " "))
		}
	}
	return nil
}

func (l *Lab) stateFile() string {
	return filepath.Join(l.Rack.Paths.Exercises(), l.exercise.Name+".json")
}

// CaptureFile returns the file of the packets that the preparation has captured.
func (l *Lab) CaptureFile() string {
	return filepath.Join(l.Rack.Paths.Exercises(), l.exercise.Name+".pcapng")
}
