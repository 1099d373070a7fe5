package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rdmalab/rdmalab/topo/crashlog"
)

// logFormatFlag is the flag of all programs that says how they write their logs.
const logFormatFlag = "log-format"

// flags returns the flags of a program, and a function that parses them and begins the log. The libraries of
// Kubernetes write to the same log.
func flags(program string) (fs *flag.FlagSet, begin func(args []string) error) {
	fs = flag.NewFlagSet(program, flag.ExitOnError)
	format := fs.String(logFormatFlag, "text", "format of the log: text (key=value) or json, one object a line")
	return fs, func(args []string) error {
		if err := fs.Parse(args); err != nil {
			return err
		}
		h, err := logHandler(*format, os.Stderr)
		if err != nil {
			return err
		}
		if *format == "json" && !crashlog.Supervised() { // what Go prints of a panic is to be JSON, too
			status, err := crashlog.Supervise(os.Stderr, about(program, fs)...)
			if err != nil {
				return err
			}
			os.Exit(status)
		}
		slog.SetDefault(slog.New(h))
		ctrl.SetLogger(logr.FromSlogHandler(h))
		klog.SetSlogLogger(slog.New(h))
		return nil
	}
}

// about returns the attributes of the record of a crash.
func about(program string, fs *flag.FlagSet) []any {
	list := []any{"process", program}
	if f := fs.Lookup("rack"); f != nil {
		list = append(list, "rack", f.Value.String())
	}
	host := os.Getenv("NODE_NAME")
	if f := fs.Lookup("name"); f != nil {
		host = f.Value.String()
	}
	return append(list, "host", host)
}

// logHandler returns the handler for a log in one of the formats text and json.
func logHandler(format string, out io.Writer) (slog.Handler, error) {
	switch format {
	case "text":
		return slog.NewTextHandler(out, nil), nil
	case "json":
		return slog.NewJSONHandler(out, nil), nil
	}
	return nil, fmt.Errorf("--%s %.40q: want text or json", logFormatFlag, format)
}
