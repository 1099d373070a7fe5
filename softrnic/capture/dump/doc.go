// Package dump decodes the packets of a capture file and prints each in one line, for people or as
// JSON, and counts damaged and malformed packets. It opens no file: a Dumper reads any io.Reader
// that package pcapng understands.
package dump
