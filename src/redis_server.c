/*-------------------------------------------------------------------------
 *
 * redis_server.c
 *	  Options of a server of the wrapper fence_redis.
 *
 * The wrapper has no handler: nothing can be read through its servers.  They
 * only keep an address, and user mappings keep the credentials, where
 * PostgreSQL hides them from those who may not see them.  Who may use a
 * server is USAGE on it.
 *
 * IDENTIFICATION
 *	  src/redis_server.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "access/reloptions.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "compat.h"
#include "redis_reply.h"
#include "redis_server.h"
#include "redis_tls.h"

PG_FUNCTION_INFO_V1(fence_redis_validator);

#define WRAPPER_NAME	"fence_redis"

typedef enum OptionKind
{
	OPTION_TEXT,
	OPTION_SECRET,				/* never shown in an error */
	OPTION_BOOL,
	OPTION_NUMBER,
	OPTION_WORD					/* one of a list */
} OptionKind;

typedef struct Option
{
	const char *name;
	Oid			catalog;
	OptionKind	kind;
	size_t		offset;			/* in FenceRedisOptions */
	int			least;			/* OPTION_NUMBER */
	int			most;
	const char *const *words;	/* OPTION_WORD, ended by NULL */
} Option;

static const char *const layout_words[] = {
	[FENCE_LAYOUT_STRING] = "string",
	[FENCE_LAYOUT_PREFIX] = "prefix",
	[FENCE_LAYOUT_HASH] = "hash",
	[FENCE_LAYOUT_ZSET] = "zset",
	NULL
};

static const char *const validate_words[] = {
	[FENCE_VALIDATE_WRITE] = "write",
	[FENCE_VALIDATE_COMMIT] = "commit",
	[FENCE_VALIDATE_BOTH] = "both",
	NULL
};

static const char *const unreachable_words[] = {"reject", "allow", NULL};

#define OFFSET(field)	offsetof(FenceRedisOptions, field)
#define SERVER			ForeignServerRelationId
#define MAPPING			UserMappingRelationId
#define DAY_MS			(24 * 60 * 60 * 1000)

static const Option known_options[] = {
	{"host", SERVER, OPTION_TEXT, OFFSET(host), 0, 0, NULL},
	{"port", SERVER, OPTION_NUMBER, OFFSET(port), 1, 65535, NULL},
	{"socket", SERVER, OPTION_TEXT, OFFSET(socket), 0, 0, NULL},
	{"sentinel", SERVER, OPTION_TEXT, OFFSET(sentinel), 0, 0, NULL},
	{"master_name", SERVER, OPTION_TEXT, OFFSET(master_name), 0, 0, NULL},
	{"db", SERVER, OPTION_NUMBER, OFFSET(db), 0, 65535, NULL},
	{"tls", SERVER, OPTION_BOOL, OFFSET(tls), 0, 0, NULL},
	{"ca_file", SERVER, OPTION_TEXT, OFFSET(ca_file), 0, 0, NULL},
	{"layout", SERVER, OPTION_WORD, OFFSET(layout), 0, 0, layout_words},
	{"key_prefix", SERVER, OPTION_TEXT, OFFSET(key_prefix), 0, 0, NULL},
	{"timeout_ms", SERVER, OPTION_NUMBER, OFFSET(timeout_ms), 1, 300000, NULL},
	{"margin_ms", SERVER, OPTION_NUMBER, OFFSET(margin_ms), 0, DAY_MS, NULL},
	{"allow_no_expiry", SERVER, OPTION_BOOL, OFFSET(allow_no_expiry), 0, 0, NULL},
	{"validate", SERVER, OPTION_WORD, OFFSET(validate), 0, 0, validate_words},
	{"on_unreachable", SERVER, OPTION_WORD, OFFSET(on_unreachable), 0, 0, unreachable_words},
	{"breaker_ms", SERVER, OPTION_NUMBER, OFFSET(breaker_ms), 0, DAY_MS, NULL},
	{"username", MAPPING, OPTION_TEXT, OFFSET(username), 0, 0, NULL},
	{"password", MAPPING, OPTION_SECRET, OFFSET(password), 0, 0, NULL}
};

static void
unknown_option(const char *name, Oid catalog)
{
	StringInfoData valid;
	int			i;

	initStringInfo(&valid);
	for (i = 0; i < (int) lengthof(known_options); i++)
	{
		if (known_options[i].catalog == catalog)
			appendStringInfo(&valid, "%s%s", valid.len > 0 ? ", " : "",
							 known_options[i].name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("invalid option \"%s\"", name),
			 valid.len > 0 ?
			 errhint("Valid options in this context are: %s.", valid.data) :
			 errhint("There are no valid options in this context.")));
}

static void
bad_value(const Option *option, const char *value, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 option->kind == OPTION_SECRET ?
			 errmsg("invalid value for option \"%s\"", option->name) :
			 errmsg("invalid value for option \"%s\": \"%s\"", option->name,
					value),
			 errdetail_internal("%s", detail)));
}

static int
parse_number(const Option *option, const char *value)
{
	char	   *end;
	long		number;

	errno = 0;
	number = strtol(value, &end, 10);
	if (errno != 0 || end == value || *end != '\0' ||
		number < option->least || number > option->most)
		bad_value(option, value, psprintf("It must be between %d and %d.",
										  option->least, option->most));
	return (int) number;
}

static int
parse_word(const Option *option, const char *value)
{
	StringInfoData valid;
	int			i;

	initStringInfo(&valid);
	for (i = 0; option->words[i] != NULL; i++)
	{
		if (strcmp(option->words[i], value) == 0)
			return i;
		appendStringInfo(&valid, "%s\"%s\"", i > 0 ? ", " : "",
						 option->words[i]);
	}
	bad_value(option, value, psprintf("It can be one of: %s.", valid.data));
	return 0;					/* keep compiler quiet */
}

static void
parse_option(const Option *option, char *value, FenceRedisOptions *options)
{
	void	   *field = (char *) options + option->offset;

	switch (option->kind)
	{
		case OPTION_TEXT:
		case OPTION_SECRET:
			if (*value == '\0')
				bad_value(option, value, "It must not be empty.");
			*(char **) field = value;
			break;
		case OPTION_BOOL:
			if (!parse_bool(value, (bool *) field))
				bad_value(option, value, "It must be true or false.");
			break;
		case OPTION_NUMBER:
			*(int *) field = parse_number(option, value);
			break;
		case OPTION_WORD:
			*(int *) field = parse_word(option, value);
			break;
	}
}

static uint32
add_fingerprint(uint32 fingerprint, const char *text)
{
	return hash_combine(fingerprint, hash_bytes((const unsigned char *) text,
												(int) strlen(text)));
}

/*
 * Adds the options of one object; raises HV00D or 22023.
 */
static void
parse_options(List *list, Oid catalog, FenceRedisOptions *options)
{
	ListCell   *lc;
	int			i;

	foreach(lc, list)
	{
		DefElem    *def = lfirst(lc);
		char	   *value = defGetString(def);

		for (i = 0; i < (int) lengthof(known_options); i++)
		{
			if (known_options[i].catalog == catalog &&
				strcmp(known_options[i].name, def->defname) == 0)
				break;
		}
		if (i == (int) lengthof(known_options))
			unknown_option(def->defname, catalog);
		parse_option(&known_options[i], value, options);
		options->fingerprint = add_fingerprint(options->fingerprint,
											   def->defname);
		options->fingerprint = add_fingerprint(options->fingerprint, value);
	}
}

static void
set_defaults(FenceRedisOptions *options)
{
	memset(options, 0, sizeof(FenceRedisOptions));
	options->timeout_ms = 100;
	options->breaker_ms = 1000;
}

static void
options_error(const char *message, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg_internal("%s", message),
			 errhint("%s", hint)));
}

/*
 * The next address of a list "host:port,host:port"; an IPv6 address stands in
 * brackets.  Returns what follows it, an empty string at the end, or NULL if
 * it is no address.
 */
const char *
fence_next_sentinel(const char *list, char *host, int *port)
{
	size_t		len = strcspn(list, ",");

	if (!fence_reply_address(list, len, host, port) || *host == '\0' ||
		host[strcspn(host, *list == '[' ? " ;" : " ;:")] != '\0')
		return NULL;
	list += len;
	if (*list == '\0')
		return list;
	list += 1 + strspn(list + 1, " ");
	return *list == '\0' ? NULL : list;
}

static void
check_sentinels(const FenceRedisOptions *options)
{
	const char *next = options->sentinel;
	char		host[FENCE_HOST_MAX + 1];
	int			port;

	do
	{
		next = fence_next_sentinel(next, host, &port);
		if (next == NULL)
			options_error("option \"sentinel\" is not a list of addresses",
						  "Write it as host:port,host:port.");
	} while (*next != '\0');
}

static void
check_address(const FenceRedisOptions *options)
{
	struct sockaddr_un address;

	if ((options->host != NULL) + (options->socket != NULL) +
		(options->sentinel != NULL) != 1)
		options_error("a server needs one address",
					  "Give exactly one of the options \"host\", \"socket\" and \"sentinel\".");
	if (options->port != 0 && options->host == NULL)
		options_error("option \"port\" belongs to option \"host\"",
					  "The port of a sentinel is part of its address; a socket has none.");
	if (options->socket != NULL &&
		strlen(options->socket) >= sizeof(address.sun_path))
		options_error("the path of the socket is too long",
					  psprintf("A path has at most %d bytes.",
							   (int) sizeof(address.sun_path) - 1));
	if ((options->master_name != NULL) != (options->sentinel != NULL))
		options_error("options \"sentinel\" and \"master_name\" belong together",
					  "Sentinels are asked for the address of the master of this name.");
	if (options->sentinel != NULL)
		check_sentinels(options);
}

static void
check_tls(const FenceRedisOptions *options)
{
	struct stat info;
	int			fd;

	if (options->tls && !fence_redis_tls_available())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("TLS is not supported by this build"),
				 errdetail("The hiredis library it was built with has no TLS; version 1.0 has."),
				 errhint("Use a unix socket or a tunnel, or build with a newer hiredis.")));
	if (options->tls && options->socket != NULL)
		options_error("option \"tls\" cannot be used with a socket",
					  "Connections by unix socket are not encrypted.");
	if (options->tls != (options->ca_file != NULL))
		options_error("options \"tls\" and \"ca_file\" belong together",
					  "The file holds the certificates that the server's one is checked by.");
	if (options->ca_file == NULL)
		return;
	/* to open a pipe could take for ever */
	if (stat(options->ca_file, &info) == 0 && !S_ISREG(info.st_mode))
		options_error("option \"ca_file\" must name a regular file",
					  "It holds certificates in PEM format.");
	fd = OpenTransientFile(options->ca_file, O_RDONLY | PG_BINARY);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", options->ca_file)));
	CloseTransientFile(fd);
}

/*
 * fence.redis_validator(options text[], catalog oid) returns void
 *
 * Called for CREATE and ALTER of servers and user mappings, with all the
 * options that the object is to have.
 */
Datum
fence_redis_validator(PG_FUNCTION_ARGS)
{
	List	   *list = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);
	FenceRedisOptions options;

	set_defaults(&options);
	parse_options(list, catalog, &options);
	if (catalog == ForeignServerRelationId)
	{
		check_address(&options);
		check_tls(&options);
	}
	if (options.username != NULL && options.password == NULL)
		options_error("option \"username\" needs option \"password\"",
					  "A password alone is that of the default user.");
	PG_RETURN_VOID();
}

static FenceVerdict *
no_such_server(const char *name)
{
	return fence_verdict(ERRCODE_UNDEFINED_OBJECT,
						 psprintf("lease store \"%s\" does not exist", name),
						 "A lease is kept by \"postgres\" or by a server of foreign-data wrapper fence_redis.",
						 "Use \"postgres\", the name of such a server, or NULL if only the order of tokens counts.");
}

/* The mapping of the user, that of PUBLIC, or none. */
static Oid
find_mapping(Oid server)
{
	Oid			mapping;

	mapping = GetSysCacheOid2(USERMAPPINGUSERSERVER, Anum_pg_user_mapping_oid,
							  ObjectIdGetDatum(GetUserId()),
							  ObjectIdGetDatum(server));
	if (!OidIsValid(mapping))
		mapping = GetSysCacheOid2(USERMAPPINGUSERSERVER,
								  Anum_pg_user_mapping_oid,
								  ObjectIdGetDatum(InvalidOid),
								  ObjectIdGetDatum(server));
	return mapping;
}

/*
 * Finds a server and the user's mapping for it, InvalidOid if there is none.
 * Returns a verdict, 42704, 42809 or 42501, if the server cannot be used.
 */
FenceVerdict *
fence_redis_server_find(const char *name, Oid *server, Oid *mapping)
{
	ForeignServer *found = GetForeignServerByName(name, true);

	if (found == NULL)
		return no_such_server(name);
	if (strcmp(GetForeignDataWrapper(found->fdwid)->fdwname,
			   WRAPPER_NAME) != 0)
		return fence_verdict(ERRCODE_WRONG_OBJECT_TYPE,
							 psprintf("server \"%s\" is not a lease store",
									  name),
							 "It belongs to another foreign-data wrapper.",
							 "Use a server of foreign-data wrapper fence_redis.");
	if (!fence_may_use_server(found->serverid))
		return fence_verdict(ERRCODE_INSUFFICIENT_PRIVILEGE,
							 psprintf("permission denied for foreign server %s",
									  name),
							 psprintf("Role \"%s\" has no USAGE on it.",
									  GetUserNameFromId(GetUserId(), false)),
							 "Grant USAGE on the server to the roles that write.");
	*server = found->serverid;
	*mapping = find_mapping(found->serverid);
	return NULL;
}

static List *
mapping_options(Oid mapping)
{
	HeapTuple	tuple = SearchSysCache1(USERMAPPINGOID,
										ObjectIdGetDatum(mapping));
	Datum		value;
	bool		isnull;
	List	   *list = NIL;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("user mapping with OID %u does not exist", mapping)));
	value = SysCacheGetAttr(USERMAPPINGOID, tuple,
							Anum_pg_user_mapping_umoptions, &isnull);
	if (!isnull)
		list = untransformRelOptions(value);
	ReleaseSysCache(tuple);
	return list;
}

/*
 * Reads the options of a server and of a mapping, into the current memory
 * context.
 */
void
fence_redis_server_options(Oid server, Oid mapping, FenceRedisOptions *options)
{
	set_defaults(options);
	parse_options(GetForeignServer(server)->options, ForeignServerRelationId,
				  options);
	if (OidIsValid(mapping))
		parse_options(mapping_options(mapping), UserMappingRelationId,
					  options);
	if (options->port == 0)
		options->port = 6379;
}
