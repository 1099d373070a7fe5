package cli

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/topo/machines"
)

// junitEnv is the environment variable that names the JUnit file to which commands that check
// something add their result. If it is not set, they add none.
const junitEnv = "RDMALAB_JUNIT"

// checking lists the commands whose result is added: those that fail if a rack, a program on it or a
// file is not as it should be. Every command called check is one, too.
var checking = []string{"up", "apply", "exec", "perf", "run", "sim", "dump", "experiment", "validate"}

// JUnit files, as far as CI systems read them. Times are in seconds.
type (
	junitFile struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string    `xml:"classname,attr"`
		Name    string    `xml:"name,attr"`
		Time    string    `xml:"time,attr"`
		Failure *junitWhy `xml:"failure"`
		Error   *junitWhy `xml:"error"`
	}
	// junitWhy is why a case failed.
	junitWhy struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// seconds writes a duration as JUnit files have it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }

// sum counts the cases of a suite.
func (s *junitSuite) sum() {
	s.Tests, s.Failures, s.Errors = len(s.Cases), 0, 0
	total := 0.0
	for i := range s.Cases {
		if s.Cases[i].Failure != nil {
			s.Failures++
		}
		if s.Cases[i].Error != nil {
			s.Errors++
		}
		if t, err := strconv.ParseFloat(s.Cases[i].Time, 64); err == nil {
			total += t
		}
	}
	s.Time = strconv.FormatFloat(total, 'f', 3, 64)
}

// readJUnit reads the text of a JUnit file. Without a byte, it has no suite.
func readJUnit(text []byte) (f junitFile, err error) {
	if len(text) > 0 {
		if err := xml.Unmarshal(text, &f); err != nil {
			return f, fmt.Errorf("no JUnit file: %w", err)
		}
	}
	return f, nil
}

// suiteName is the name of the suite with the results of commands.
const suiteName = "rdmalab"

// mostJUnit is the largest file in bytes to which results are added.
const mostJUnit = 64 << 20

// addJUnit adds a case to the file name, which it makes if there is none, and its folder. Several
// processes may do so at the same time.
func addJUnit(name string, c *junitCase) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }() // which ends the lock, too
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > mostJUnit {
		return errors.Join(err, fmt.Errorf("%s is no file of at most %d MiB: name another one", name, mostJUnit>>20))
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	old, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	all, err := readJUnit(old)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case len(all.Suites) == 0:
		all.Suites = []junitSuite{{Name: suiteName}}
	case len(all.Suites) > 1 || all.Suites[0].Name != suiteName:
		return fmt.Errorf("%s has results of another program, parts of which would be lost: name a file of its own", name)
	}
	s := &all.Suites[0]
	s.Cases = append(s.Cases, *c)
	s.sum()
	text, err := xml.MarshalIndent(&all, "", "  ")
	if err != nil {
		return err
	}
	text = append([]byte(xml.Header), append(text, '\n')...)
	if _, err := file.WriteAt(text, 0); err != nil {
		return err
	}
	return file.Truncate(int64(len(text)))
}

// inJUnit adds the result of a command line to the file that the environment names, if the command
// checks something. It returns failed, the command's error, or why the result could not be added.
func inJUnit(root *cobra.Command, args []string, took time.Duration, failed error) error {
	file := os.Getenv(junitEnv)
	if file == "" {
		return failed
	}
	cmd, _, err := root.Find(args)
	own := args // without the command line of a program on a host
	if i := slices.Index(args, "--"); i >= 0 {
		own = args[:i]
	}
	if err != nil || !checks(cmd) || slices.Contains(own, "--help") || slices.Contains(own, "-h") {
		return failed
	}
	rack, err := cmd.Flags().GetString("rack")
	if err != nil {
		rack = defaultRack
	}
	c := junitCase{Class: "rdmalab." + rack, Name: commandLine(args), Time: seconds(took)}
	if failed != nil {
		text := failed.Error()
		first, _, _ := strings.Cut(text, "\n")
		why := &junitWhy{Message: first, Text: text}
		if c.Failure = why; isUse(failed) {
			c.Failure, c.Error = nil, why
		}
	}
	if err := addJUnit(file, &c); err != nil {
		err = fmt.Errorf("%s: %w", junitEnv, err)
		if failed == nil {
			return err
		}
		fmt.Fprintln(os.Stderr, hintsOf(root).error(err))
	}
	return failed
}

// checks reports whether a command is one whose result is added.
func checks(cmd *cobra.Command) bool {
	if cmd.Name() == "check" {
		return true
	}
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	return slices.Contains(checking, cmd.Name()) || cmd.Name() == "exercise" && cmd.Flags().Changed("check")
}

// commandLine writes arguments as a shell reads them.
func commandLine(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		if words[i] = a; a == "" || strings.ContainsAny(a, " \t\n'\"\\$`&|;<>()*?[]{}~#!") {
			words[i] = machines.Quote(a)
		}
	}
	return strings.Join(words, " ")
}
