/*-------------------------------------------------------------------------
 *
 * redis_reply.c
 *	  What a reply of Redis means.
 *
 * Whoever answers on the other end of the socket may be anything, so every
 * caller says what it expects, and all else is an error: never "yes", and
 * never "no" either.  "Could not ask" and "not held" must not look alike.
 *
 * Error replies begin with a word that says what kind they are.  Those that
 * pass by themselves make the store unreachable for now; all the others,
 * unknown ones included, are for somebody to look at.
 *
 * Nothing in this file calls the server or knows of sockets, so that
 * test/unit can link it into ordinary programs, with sanitizers and a fuzzer.
 *
 * IDENTIFICATION
 *	  src/redis_reply.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "redis_reply.h"

/* No answer to one of our commands has more elements. */
#define ELEMENTS_MAX	8

static const struct
{
	const char *word;
	FenceReplyStatus status;
}			error_words[] = {
	{"NOSCRIPT", FENCE_REPLY_NO_SCRIPT},
	{"MOVED", FENCE_REPLY_MOVED},
	{"ASK", FENCE_REPLY_ASK},
	{"READONLY", FENCE_REPLY_READ_ONLY},
	{"LOADING", FENCE_REPLY_UNABLE},
	{"BUSY", FENCE_REPLY_UNABLE},
	{"UNKILLABLE", FENCE_REPLY_UNABLE},
	{"MISCONF", FENCE_REPLY_UNABLE},
	{"NOREPLICAS", FENCE_REPLY_UNABLE},
	{"OOM", FENCE_REPLY_UNABLE},
	{"CLUSTERDOWN", FENCE_REPLY_UNABLE},
	{"MASTERDOWN", FENCE_REPLY_UNABLE},
	{"TRYAGAIN", FENCE_REPLY_UNABLE}
};

/* Has no word of its own. */
#define TOO_MANY_CLIENTS	"ERR max number of clients reached"

/* What follows are words of ours: values of locks, a password. */
#define QUOTES_COMMAND		", with args"

/*
 * Arrays are allocated as soon as their length has been read, so a length
 * that somebody made up would be enough to exhaust the memory.
 */
static void *(*create_array) (const redisReadTask *, FenceElementCount);

static void *
create_small_array(const redisReadTask *task, FenceElementCount elements)
{
	if (elements > ELEMENTS_MAX)
		return NULL;			/* the reader reports "Out of memory" */
	return create_array(task, elements);
}

/*
 * A reader for replies; NULL if there is no memory.  To be freed by
 * redisReaderFree().
 */
redisReader *
fence_reply_reader(void)
{
	static redisReplyObjectFunctions functions;
	redisReader *reader = redisReaderCreate();

	if (reader == NULL)
		return NULL;
	if (create_array == NULL)
	{
		functions = *reader->fn;
		create_array = functions.createArray;
		functions.createArray = create_small_array;
	}
	reader->fn = &functions;
	return reader;
}

/*
 * Cuts off the digest of the script in which an error was raised, which Redis
 * 7 adds.  The text may already end within it.
 */
static void
cut_script(char *problem)
{
	static const char *const word = " script: ";
	char	   *tail = problem;

	while ((tail = strstr(tail, word)) != NULL)
	{
		const char *digest = tail + strlen(word);
		char		next = digest[strspn(digest, "0123456789abcdef")];

		if (next == '\0' || next == ',')
			*tail = '\0';
		else
			tail++;
	}
}

/*
 * Sets the status and a text that is fit for an error message: it comes from
 * outside, in whatever encoding, and is to end without a full stop.
 */
void
fence_reply_problem(FenceReply *decoded, FenceReplyStatus status,
					const char *text, size_t len)
{
	char	   *problem = decoded->problem;
	size_t		i;

	decoded->status = status;
	len = Min(len, sizeof(decoded->problem) - 1);
	for (i = 0; i < len; i++)
		problem[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	problem[len] = '\0';
	cut_script(problem);
	len = strlen(problem);
	if (len > 0 && problem[len - 1] == '.')
		problem[len - 1] = '\0';
}

static int
port_number(const char *text, size_t len)
{
	int			port = 0;
	size_t		i;

	if (len == 0 || len > 5)
		return 0;
	for (i = 0; i < len; i++)
	{
		if (text[i] < '0' || text[i] > '9')
			return 0;
		port = port * 10 + (text[i] - '0');
	}
	return port <= 65535 ? port : 0;
}

static bool
copy_host(const char *text, size_t len, char *host)
{
	if (len > FENCE_HOST_MAX || memchr(text, '\0', len) != NULL)
		return false;
	memcpy(host, text, len);
	host[len] = '\0';
	return true;
}

/*
 * Splits "host:port" at the last colon; an IPv6 address may stand in
 * brackets.  The host may be empty.  The buffer has FENCE_HOST_MAX + 1 bytes.
 */
bool
fence_reply_address(const char *text, size_t len, char *host, int *port)
{
	size_t		colon = len;

	while (colon > 0 && text[colon - 1] != ':')
		colon--;
	if (colon == 0)
		return false;
	*port = port_number(text + colon, len - colon);
	len = colon - 1;
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']')
	{
		text++;
		len -= 2;
	}
	return *port != 0 && copy_host(text, len, host);
}

/* "MOVED 3999 127.0.0.1:6381" */
static void
decode_redirect(const redisReply *reply, FenceReply *decoded)
{
	size_t		blank = reply->len;

	while (blank > 0 && reply->str[blank - 1] != ' ')
		blank--;
	if (!fence_reply_address(reply->str + blank, reply->len - blank,
							 decoded->host, &decoded->port))
		decoded->status = FENCE_REPLY_MISCONFIGURED;
}

static void
decode_error(const redisReply *reply, FenceReply *decoded)
{
	FenceReplyStatus status = FENCE_REPLY_MISCONFIGURED;
	const char *quoted = strstr(reply->str, QUOTES_COMMAND);
	size_t		shown = quoted != NULL ? (size_t) (quoted - reply->str) : reply->len;
	size_t		i;

	for (i = 0; i < lengthof(error_words); i++)
	{
		size_t		len = strlen(error_words[i].word);

		if (reply->len >= len &&
			memcmp(reply->str, error_words[i].word, len) == 0 &&
			(reply->len == len || reply->str[len] == ' '))
			status = error_words[i].status;
	}
	if (reply->len >= strlen(TOO_MANY_CLIENTS) &&
		memcmp(reply->str, TOO_MANY_CLIENTS, strlen(TOO_MANY_CLIENTS)) == 0)
		status = FENCE_REPLY_UNABLE;

	fence_reply_problem(decoded, status, reply->str, shown);
	if (status == FENCE_REPLY_MOVED || status == FENCE_REPLY_ASK)
		decode_redirect(reply, decoded);
}

static bool
is_pair(const redisReply *reply, int type)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		reply->element[0]->type == type && reply->element[1]->type == type;
}

static bool
decode_expected(const redisReply *reply, FenceExpect expect,
				FenceReply *decoded)
{
	switch (expect)
	{
		case FENCE_EXPECT_OK:
			return reply->type == REDIS_REPLY_STATUS && reply->len == 2 &&
				memcmp(reply->str, "OK", 2) == 0;

		case FENCE_EXPECT_PAIR:
			if (!is_pair(reply, REDIS_REPLY_INTEGER))
				return false;
			decoded->pair[0] = reply->element[0]->integer;
			decoded->pair[1] = reply->element[1]->integer;
			return true;

		case FENCE_EXPECT_ADDRESS:
			if (reply->type == REDIS_REPLY_NIL)
			{
				decoded->status = FENCE_REPLY_NOTHING;
				return true;
			}
			if (!is_pair(reply, REDIS_REPLY_STRING))
				return false;
			decoded->port = port_number(reply->element[1]->str,
										reply->element[1]->len);
			return decoded->port != 0 && reply->element[0]->len > 0 &&
				copy_host(reply->element[0]->str, reply->element[0]->len,
						  decoded->host);
	}
	return false;
}

/*
 * Decodes a reply, which stays the caller's.
 */
void
fence_reply_decode(const redisReply *reply, FenceExpect expect,
				   FenceReply *decoded)
{
	static const char alien[] = "not a reply to what was asked";

	memset(decoded, 0, sizeof(FenceReply));
	decoded->status = FENCE_REPLY_GOOD;
	if (reply->type == REDIS_REPLY_ERROR)
		decode_error(reply, decoded);
	else if (!decode_expected(reply, expect, decoded))
		fence_reply_problem(decoded, FENCE_REPLY_MISCONFIGURED, alien,
							strlen(alien));
}
